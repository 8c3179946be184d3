"""A vLLM server that runs already, and isn't ours to start or stop."""

from __future__ import annotations

from urllib.parse import urlsplit

from art_core.errors import ConfigError, EngineError


class AttachedServer:
    """Only its address, and how long it may be gone.

    Raises:
        ConfigError: ``url`` isn't an HTTP address.
    """

    def __init__(self, url: str, *, patience: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ConfigError(f"url is {url!r}", "Write the server's: 'http://gpu-box:8000'.")
        self.url = url.rstrip("/").removesuffix("/v1")
        self.start_timeout = patience
        self.restarts = False

    def start(self) -> None:
        """Somebody else does."""

    def failure(self) -> EngineError | None:
        """Known only by asking it."""

    def last_error(self) -> str:
        """Its log is elsewhere."""
        return ""

    def stop(self) -> None:
        """It goes on."""
