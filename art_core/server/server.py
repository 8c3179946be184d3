"""The server process: one port for training and for the models' API."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from art_core.backends.local import LocalBackend
from art_core.errors import ConfigError
from art_core.gateway.thread import ServerThread, listen
from art_core.runs.lock import RunLock
from art_core.server.app import Application
from art_core.server.guard import GuardedProtocol
from art_core.server.keys import SERVER_FOLDER, KeyStore
from art_core.server.meter import Meter
from art_core.server.tenants import Tenants


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How a server is run."""

    root: Path
    host: str = "127.0.0.1"
    port: int = 7999
    base_models: list[str] = field(default_factory=lambda: ["smollm2-135m"])
    """What clients may ask for, spelled as they must spell it."""


class ArtServer:
    """Serves until it is stopped.

    Args:
        host: holds the base models: a backend that no model is registered with.

    Raises:
        ConfigError: no base model is offered.
        RunLockedError: another server has this root.
        PortTakenError: another program listens there.
    """

    def __init__(self, settings: ServerSettings, host: LocalBackend) -> None:
        if not settings.base_models:
            raise ConfigError("no base model is offered", "Pass --base-model.")
        self.settings = settings
        self.keys = KeyStore(settings.root)
        self._lock = RunLock(settings.root / SERVER_FOLDER)
        meter = Meter(settings.root)
        self._tenants = Tenants(settings.root, settings.base_models, host, meter)
        self._app = Application(self.keys, meter, self._tenants)
        self._thread: ServerThread | None = None

    @property
    def url(self) -> str:
        host, port = self._running().address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Listen, open the runs that there are, go on with the queue."""
        listener = listen(self.settings.host, self.settings.port)
        self._thread = ServerThread(self._app, listener, http=GuardedProtocol)
        self._thread.start()
        self._thread.run(self._tenants.open(self._thread))

    def stop(self) -> None:
        """Finish the training step that is under way; what waits is kept for the next start."""
        thread = self._running()
        try:
            thread.run(self._tenants.close())
        finally:
            thread.stop()
            self._lock.release()

    @property
    def unreadable(self) -> dict[str, str]:
        """Runs under the root that can't be served, and why."""
        return self._tenants.unreadable

    def _running(self) -> ServerThread:
        if self._thread is None:
            raise ConfigError("the server isn't running", "Call start() first.")
        return self._thread
