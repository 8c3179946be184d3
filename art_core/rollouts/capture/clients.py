"""Clients that reach the gateway directly, whatever the agent's own client is set up with."""

from __future__ import annotations

import asyncio
import functools
import importlib
import importlib.util
import ssl
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

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
    """One rollout's clients without proxies, for its redirected requests.

    The asynchronous ones keep a connection open in the event loop that the rollout
    was opened in, until it ends there. In another loop (a synchronous agent that calls
    ``asyncio.run``) each request has a client and a connection of its own.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._sync: dict[HttpLibrary, httpx.Client] = {}
        self._async: dict[HttpLibrary, httpx.AsyncClient] = {}

    def sync(self, library: HttpLibrary) -> httpx.Client:
        """The client for synchronous requests; may be used by many threads."""
        with self._lock:
            if library not in self._sync:
                # An explicit transport is what makes a client ignore proxies.
                limits = _limits(library, keep_open=True)
                transport = library.transport(verify=_tls(), limits=limits)
                self._sync[library] = library.client(transport=transport)
            return self._sync[library]

    def asynchronous(self, library: HttpLibrary) -> httpx.AsyncClient:
        """The client for requests of the running event loop."""
        if asyncio.get_running_loop() is not self._loop:
            return _new_async_client(library, keep_open=False)
        if library not in self._async:
            self._async[library] = _new_async_client(library, keep_open=True)
        return self._async[library]

    async def close(self) -> None:
        """Close all connections that are kept open."""
        with self._lock:
            while self._sync:
                self._sync.popitem()[1].close()
        while self._async:
            await self._async.popitem()[1].aclose()


def _new_async_client(library: HttpLibrary, *, keep_open: bool) -> httpx.AsyncClient:
    limits = _limits(library, keep_open=keep_open)
    return library.async_client(transport=library.async_transport(verify=_tls(), limits=limits))


def _limits(library: HttpLibrary, *, keep_open: bool) -> httpx.Limits:
    """No request waits for another one's connection."""
    return library.limits(max_connections=None, max_keepalive_connections=None if keep_open else 0)


@functools.cache
def _tls() -> ssl.SSLContext:
    """One for all: reading the certificates takes far longer than the rest of a client."""
    import httpx

    return httpx.create_ssl_context()
