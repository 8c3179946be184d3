"""The patches: there while a rollout is open, gone with the last one."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from art_core.rollouts.capture.clients import DirectClients, HttpLibrary, installed_libraries
from art_core.rollouts.capture.target import Capture, Elsewhere, redirected_request
from art_core.rollouts.route import Route, current_router

if TYPE_CHECKING:
    import httpx


@asynccontextmanager
async def capturing(capture: Capture) -> AsyncGenerator[None]:
    """Redirect the model calls made inside, and in what inherits this context, to a rollout.

    Asyncio tasks, ``asyncio.to_thread``, ``run_in_executor`` and
    ``ThreadPoolExecutor.submit`` inherit it; a ``threading.Thread`` doesn't.
    """
    _installation.enter(capture)
    before = current_router.get()
    route = Route(ticket=capture.ticket)
    # Set back by value: the end may run in another task, where a token isn't valid.
    current_router.set(lambda: route)
    try:
        yield
    finally:
        current_router.set(before)
        _installation.leave(capture)
        await capture.clients.close()


@contextmanager
def untraced() -> Generator[None]:
    """Leave the model calls made inside alone: judges, graders, user simulators."""
    before = current_router.get()
    current_router.set(None)
    try:
        yield
    finally:
        current_router.set(before)


class _Installation:
    """The open rollouts of this process, and the patches that they need.

    The one object of this package that lives as long as the process: what it
    patches is the process's, too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._captures: dict[str, Capture] = {}
        self._undo: list[Callable[[], None]] = []

    def enter(self, capture: Capture) -> None:
        with self._lock:
            if not self._captures:
                self._install()
            self._captures[capture.ticket.rollout_id] = capture

    def leave(self, capture: Capture) -> None:
        with self._lock:
            del self._captures[capture.ticket.rollout_id]
            while self._undo and not self._captures:
                self._undo.pop()()

    def redirect(
        self, client: httpx.Client | httpx.AsyncClient, request: httpx.Request
    ) -> tuple[httpx.Request, DirectClients] | Capture | None:
        """What to send instead, and with which clients.

        A capture: a model call that isn't its policy's, to be noted there. None: leave it alone.
        """
        router = current_router.get()
        if router is None or client.is_closed:
            return None
        route = router()
        capture = self._captures.get(route.ticket.rollout_id) if route.ticket else None
        if route.ticket is None or capture is None:
            return None
        if capture.is_attributed(request):
            return request, capture.clients
        path = capture.path_of(request)
        if path is None:
            return None
        if isinstance(path, Elsewhere):
            return capture
        capture.redirected += 1
        timeout = client.timeout.as_dict()
        instead = redirected_request(request, route.ticket, path, tags=route.tags, timeout=timeout)
        return instead, capture.clients

    def _install(self) -> None:
        for library in installed_libraries():
            self._patch(library.client, "send", self._sync_send(library))
            self._patch(library.async_client, "send", self._async_send(library))
        self._patch(ThreadPoolExecutor, "submit", _submit_with_context(ThreadPoolExecutor.submit))

    def _patch(self, owner: type, name: str, replacement: Callable[..., Any]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, replacement)

        def undo() -> None:
            # Patched again by someone else: taking ours out would take theirs out, and
            # without an open rollout ours does nothing.
            if getattr(owner, name) is replacement:
                setattr(owner, name, original)

        self._undo.append(undo)

    def _sync_send(self, library: HttpLibrary) -> Callable[..., httpx.Response]:
        original = library.client.send

        def send(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
            redirected = self.redirect(client, request)
            if not isinstance(redirected, tuple):
                response = original(client, request, **options)
                if redirected is not None:
                    redirected.keep_answer(request, response)
                return response
            instead, clients = redirected
            stream = options.get("stream", False)
            return original(clients.sync(library), instead, stream=stream, auth=None)

        return send

    def _async_send(self, library: HttpLibrary) -> Callable[..., Any]:
        original = library.async_client.send

        async def send(
            client: httpx.AsyncClient, request: httpx.Request, **options: Any
        ) -> httpx.Response:
            redirected = self.redirect(client, request)
            if not isinstance(redirected, tuple):
                response = await original(client, request, **options)
                if redirected is not None:
                    redirected.keep_answer(request, response)
                return response
            instead, clients = redirected
            stream = options.get("stream", False)
            return await original(clients.asynchronous(library), instead, stream=stream, auth=None)

        return send


def _submit_with_context(original: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    def submit(
        executor: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        if current_router.get() is None:
            return original(executor, fn, *args, **kwargs)
        return original(executor, contextvars.copy_context().run, fn, *args, **kwargs)

    return submit


_installation = _Installation()
