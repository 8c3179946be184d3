"""Runs ``art serve`` until a signal comes."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from typing import Any, Literal, cast

from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape

from art_core.errors import ConfigError

EngineName = Literal["embedded", "vllm"]
DtypeName = Literal["auto", "float32", "bfloat16"]


def run_server(
    *,
    root: Path,
    host: str,
    port: int,
    base_models: list[str],
    engine: str,
    engine_url: str | None,
    device: str,
    dtype: str,
) -> None:
    """Start the server, and stop it gracefully on SIGTERM or Ctrl-C; a second one ends it hard."""
    from art_core.backends.local import LocalBackend
    from art_core.server.server import ArtServer, ServerSettings

    _check("engine", engine, ("embedded", "vllm"))
    _check("dtype", dtype, ("auto", "float32", "bfloat16"))
    console = Console(stderr=True)
    logging.basicConfig(
        level=logging.WARNING, format="%(message)s", handlers=[RichHandler(console=console)]
    )
    backend = LocalBackend(
        root,
        device=device,
        dtype=cast("DtypeName", dtype),
        engine=cast("EngineName", engine),
        url=engine_url,
    )
    settings = ServerSettings(root=root, host=host, port=port, base_models=base_models)
    server = ArtServer(settings, backend)
    stop = threading.Event()

    def on_signal(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    server.start()
    console.print(f"serving on [bold]{server.url}[/]  (runs: {escape(str(root))})", highlight=False)
    if not server.keys.all():
        console.print("There is no key yet: art keys create PROJECT NAME", highlight=False)
    while not stop.wait(1.0):  # short waits: signals are handled between them
        pass
    console.print("finishing what is under way …", highlight=False)
    server.stop()
    console.print("stopped.", highlight=False)


def _check(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"--{option} is {value!r}", f"Use one of {', '.join(allowed)}.")
