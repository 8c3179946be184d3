"""Clients that reach the gateway directly, whatever the agent's own client is set up with."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True, eq=False)
class HttpLibrary:
    """``httpx``, or ``httpx2`` with the same interface: agents expect the exceptions and
    responses of the one that they use."""

    name: str
    client: type[httpx.Client]
    async_client: type[httpx.AsyncClient]
    transport: type[httpx.HTTPTransport]
    async_transport: type[httpx.AsyncHTTPTransport]
    limits: type[httpx.Limits]


def installed_libraries() -> list[HttpLibrary]:
    """Those of the two that are installed."""
    return [_load(name) for name in ("httpx", "httpx2") if importlib.util.find_spec(name)]


def _load(name: str) -> HttpLibrary:
    # httpx2 isn't a dependency of ours: where it is there, it has httpx's interface.
    module = cast("httpx", importlib.import_module(name))  # pyright: ignore[reportGeneralTypeIssues]
    return HttpLibrary(
        name=name,
        client=module.Client,
        async_client=module.AsyncClient,
        transport=module.HTTPTransport,
        async_transport=module.AsyncHTTPTransport,
        limits=module.Limits,
    )


class DirectClients:
    """Clients without proxies, for redirected requests.

    Asynchronous ones keep connections open only in event loops with an open
    rollout, which closes them at its end. In another loop (a synchronous agent that
    calls ``asyncio.run``) each request has a client and a connection of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sync: dict[HttpLibrary, httpx.Client] = {}
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopClients] = (
            WeakKeyDictionary()
        )

    def sync(self, library: HttpLibrary) -> httpx.Client:
        """The client for synchronous requests; may be used by many threads."""
        with self._lock:
            if library not in self._sync:
                # An explicit transport is what makes the client ignore proxies.
                transport = library.transport(limits=_limits(library, keep_open=True))
                self._sync[library] = library.client(transport=transport)
            return self._sync[library]

    def asynchronous(self, library: HttpLibrary) -> httpx.AsyncClient:
        """The client for requests of the running event loop."""
        here = self._loops.get(asyncio.get_running_loop())
        if here is None:
            return _new_async_client(library, keep_open=False)
        if library not in here.clients:
            here.clients[library] = _new_async_client(library, keep_open=True)
        return here.clients[library]

    def enter_loop(self) -> None:
        """A rollout opens in the running loop."""
        self._loops.setdefault(asyncio.get_running_loop(), _LoopClients({})).rollouts += 1

    async def leave_loop(self) -> None:
        """A rollout ends in the running loop; the last one closes its connections."""
        loop = asyncio.get_running_loop()
        here = self._loops[loop]
        here.rollouts -= 1
        if here.rollouts == 0:
            del self._loops[loop]
            for client in here.clients.values():
                await client.aclose()

    def close(self) -> None:
        """Close the connections of synchronous requests."""
        with self._lock:
            while self._sync:
                self._sync.popitem()[1].close()


@dataclass(slots=True)
class _LoopClients:
    clients: dict[HttpLibrary, httpx.AsyncClient]
    rollouts: int = 0


def _new_async_client(library: HttpLibrary, *, keep_open: bool) -> httpx.AsyncClient:
    transport = library.async_transport(limits=_limits(library, keep_open=keep_open))
    return library.async_client(transport=transport)


def _limits(library: HttpLibrary, *, keep_open: bool) -> httpx.Limits:
    """No request waits for another one's connection."""
    return library.limits(max_connections=None, max_keepalive_connections=None if keep_open else 0)
