"""HTTP around a call: bodies in, JSON or server-sent events out, clients that leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from pydantic_core import to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from art_core.errors import ArtError
from art_core.gateway.call import Call
from art_core.gateway.problems import Problem, problem_of

Handler = Callable[[Request], Awaitable[Response]]
ErrorBody = Callable[[Problem], dict[str, Any]]
"""How an error reads in the API that the client speaks."""

_log = logging.getLogger(__name__)


class JsonResponse(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return to_json(content)


class EventStream(Response):
    """Sends server-sent events while a call is sampled.

    The status waits for the first piece, so that a call which fails before it is
    answered with the error's own.
    """

    def __init__(
        self, call: Call, events: AsyncIterator[bytes], error_body: ErrorBody = Problem.body
    ) -> None:
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-cache"})
        del self.headers["content-length"]
        self._call = call
        self._events = events
        self._error_body = error_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with abandoned_if_client_leaves(receive, self._call):
            try:
                await self._call.first_news()
            except Exception as error:  # noqa: BLE001  (becomes the answer)
                answer = problem_response(as_problem(error), self._error_body)
                await answer(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for event in self._events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def event(data: Any) -> bytes:
    """One server-sent event of JSON."""
    return b"data: " + to_json(data) + b"\n\n"


def named_event(name: str, data: Any) -> bytes:
    """One server-sent event of JSON, with a name."""
    return f"event: {name}\n".encode() + event(data)


@asynccontextmanager
async def abandoned_if_client_leaves(receive: Receive, call: Call) -> AsyncGenerator[None]:
    """Abandon the call when the client hangs up, or when the block is left before its end."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        call.abandon(hung_up())

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        call.abandon(hung_up())


def hung_up() -> Problem:
    return Problem(status=499, message="The client hung up.", code="client_closed_request")


def problem_response(problem: Problem, error_body: ErrorBody = Problem.body) -> Response:
    return JsonResponse(
        error_body(problem), status_code=problem.status, headers=dict(problem.headers)
    )


def as_problem(error: Exception) -> Problem:
    """How any exception of a handler is answered; one that nobody foresaw is logged."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, ClientDisconnect):
        return hung_up()
    if isinstance(error, ArtError):
        return problem_of(error)
    _log.error("a request failed", exc_info=error)
    return Problem(status=500, message=f"{type(error).__name__}: {error}", code="internal_error")


def answering(handler: Handler, error_body: ErrorBody = Problem.body) -> Handler:
    """A handler whose exceptions become OpenAI-shaped answers."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:  # noqa: BLE001  (each becomes an answer, and is named in it)
            return problem_response(as_problem(error), error_body)

    return answer
