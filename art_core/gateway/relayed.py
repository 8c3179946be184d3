# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""One call that is passed on: whole or streamed, and kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

import openai
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from art_core.gateway.bodies import check_values, read_body
from art_core.gateway.http import JsonResponse, event, hung_up
from art_core.gateway.problems import Problem, problem_of_validation
from art_core.gateway.upstreams import Upstream
from art_core.rollouts.prompted import PromptedCall
from art_core.trajectories import CompletionStatus, Message, Tool

_MAX_BODY_BYTES = 64 * 1024 * 1024
_HEADERS_PASSED_ON = ("retry-after", "retry-after-ms", "x-should-retry")

T = TypeVar("T")


class _StreamOptions(BaseModel):
    model_config = ConfigDict(extra="allow")

    include_usage: bool | None = None


class Order(BaseModel):
    """A request's body. What isn't named here goes on as it is."""

    model_config = ConfigDict(extra="allow")

    messages: list[Message]
    tools: list[Tool] | None = None
    model: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None

    @property
    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def body(self) -> dict[str, Any]:
        """What the upstream is asked."""
        body = self.model_dump(exclude_unset=True, exclude={"model", "stream", "stream_options"})
        if self.stream:
            options = self.stream_options or _StreamOptions()
            body["stream_options"] = {**options.model_dump(exclude_unset=True)} | {
                "include_usage": True
            }
        return body


async def read_order(request: Request) -> Order:
    """The request's body, checked.

    Raises:
        Problem: 400, it can't be read; 413, it has too many bytes or values.
    """
    content = await read_body(request, _MAX_BODY_BYTES)
    await check_values(content, context=0)  # messages, not token ids
    try:
        return Order.model_validate_json(content)
    except ValidationError as error:
        raise problem_of_validation(error, content) from error


@dataclass(slots=True)
class RelayedCall:
    """Passes an order on and notes in ``kept`` what became of it."""

    upstream: Upstream
    order: Order
    kept: PromptedCall

    async def respond(self, request: Request) -> Response:
        """The answer, or its stream, once there is something of it.

        Raises:
            Problem: the upstream's error, with its status; or the client hung up.
        """
        started = time.monotonic()
        if not self.order.stream:
            answer = await self._attempt(request, self.upstream.answer(self.order.body()))
            self._keep(answer, started)
            return JsonResponse(answer)
        chunks = self.upstream.stream(self.order.body())
        # The status waits for the first chunk: a call that is refused gets its own.
        first = await self._attempt(request, anext(chunks, None))
        return StreamingResponse(self._events(first, chunks, started), 200, _STREAM_HEADERS)

    async def _attempt(self, request: Request, work: Awaitable[T]) -> T:
        try:
            return await _unless_client_leaves(request, work)
        except openai.APIError as error:
            self.kept.status = CompletionStatus.FAILED
            raise _problem(error) from error

    async def _events(
        self,
        first: dict[str, Any] | None,
        chunks: AsyncGenerator[dict[str, Any]],
        started: float,
    ) -> AsyncGenerator[bytes]:
        whole = _Whole()
        try:
            chunk = first
            while chunk is not None:
                whole.add(chunk)
                if chunk.get("choices") or self.order.wants_usage:
                    yield event(chunk)
                chunk = await anext(chunks, None)
        except openai.APIError as error:
            self.kept.status = CompletionStatus.FAILED
            yield event(_problem(error).body())
            return
        finally:
            await chunks.aclose()
        self._keep(whole.answer(), started)
        yield b"data: [DONE]\n\n"

    def _keep(self, answer: dict[str, Any], started: float) -> None:
        kept, usage = self.kept, answer.get("usage") or {}
        kept.seconds = time.monotonic() - started
        kept.prompt_tokens = usage.get("prompt_tokens") or 0
        kept.completion_tokens = usage.get("completion_tokens") or 0
        kept.cost_usd = self.upstream.cost_usd(usage) if usage else None
        choice = next(iter(answer.get("choices") or ()), {})
        kept.response = choice.get("message")
        cut = choice.get("finish_reason") == "length"
        kept.status = CompletionStatus.TRUNCATED if cut else CompletionStatus.COMPLETED


_STREAM_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-cache"}


class _Whole:
    """Puts the first choice of a stream together."""

    def __init__(self) -> None:
        self._message: Message = {"role": "assistant", "content": None}
        self._calls: dict[int, dict[str, Any]] = {}
        self._reason: str | None = None
        self._usage: dict[str, Any] | None = None

    def add(self, chunk: dict[str, Any]) -> None:
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            self._reason = choice.get("finish_reason") or self._reason
            delta = choice.get("delta") or {}
            for name in ("content", "reasoning_content", "refusal"):
                if text := delta.get(name):
                    self._message[name] = f"{self._message.get(name) or ''}{text}"
            for piece in delta.get("tool_calls") or ():
                self._add_call(piece)

    def answer(self) -> dict[str, Any]:
        message = dict(self._message)
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        choice = {"index": 0, "message": message, "finish_reason": self._reason}
        return {"choices": [choice], "usage": self._usage}

    def _add_call(self, piece: dict[str, Any]) -> None:
        index = piece.get("index") or 0
        call = self._calls.setdefault(
            index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        call["id"] = piece.get("id") or call["id"]
        function = piece.get("function") or {}
        for name in ("name", "arguments"):
            call["function"][name] += function.get(name) or ""


async def _unless_client_leaves(request: Request, work: Awaitable[T]) -> T:
    """The result, or a `Problem` (499) and the work cancelled when the client hangs up."""
    call = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({call, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not call.done():
            raise hung_up()
        return call.result()
    finally:
        leaving.cancel()
        call.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _problem(error: openai.APIError) -> Problem:
    """The upstream's error for the agent's client, so that it retries what it would there."""
    status = getattr(error, "status_code", None)
    if isinstance(error, openai.APITimeoutError):
        status = 504
    response = getattr(error, "response", None)
    headers = getattr(response, "headers", None) or {}
    return Problem(
        status=status if isinstance(status, int) else 502,
        message=error.message,
        code=error.code if isinstance(error.code, str) else "upstream_error",
        headers={name: headers[name] for name in _HEADERS_PASSED_ON if name in headers},
    )
