"""A thread with an event loop and an HTTP server in it."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar

import uvicorn
from starlette.types import ASGIApp

from art_core.errors import ConfigError, GatewayError, PortTakenError

_KEEP_ALIVE_SECONDS = 120
"""Longer than clients keep idle connections (5 s), so that none is closed under a request."""
_GRACE_SECONDS = 10
_BACKLOG = 4096

_T = TypeVar("_T")


class ServerThread:
    """Serves ``app`` on a listening socket until it is stopped.

    ``http`` is uvicorn's: what speaks HTTP on a connection.
    """

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        *,
        http: type[asyncio.Protocol] | Literal["auto"] = "auto",
    ) -> None:
        self.address: tuple[str, int] = listener.getsockname()[:2]
        self._listener = listener
        self._server = _Server(
            uvicorn.Config(
                app,
                lifespan="off",
                http=http,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_GRACE_SECONDS,
            ),
            on_started=self._started,
        )
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="art-gateway", daemon=True)

    def start(self) -> None:
        """Returns once requests are answered."""
        self._thread.start()
        self._ready.wait()
        if self._loop is None:
            raise GatewayError("the gateway's thread ended before it served anything")

    def stop(self) -> None:
        """Answer what is under way, close all connections, end the thread."""
        self._server.should_exit = True
        self._thread.join()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run ``work`` in this thread's event loop, and wait for it in another thread.

        Raises:
            GatewayError: called in this thread, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise GatewayError("a blocking call inside the gateway's own thread")
        return asyncio.run_coroutine_threadsafe(work, self._own_loop()).result()

    async def arun(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run ``work`` in this thread's event loop, and wait for it in any event loop."""
        future = asyncio.run_coroutine_threadsafe(work, self._own_loop())
        return await asyncio.wrap_future(future)

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise GatewayError("the gateway isn't running")
        return self._loop

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve(sockets=[self._listener]))
        finally:
            self._ready.set()
            self._listener.close()

    def _started(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ready.set()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, *, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        PortTakenError: another program listens there.
        ConfigError: the host is unknown or isn't an address of this machine.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise ConfigError(f"can't listen on host {host!r}, port {port}: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTakenError(
                f"port {port} on {host} is taken",
                "Stop what listens there, or choose another port (0 takes a free one).",
            ) from error
        raise ConfigError(f"can't listen on host {host!r}, port {port}: {error}") from error
    return listener


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
