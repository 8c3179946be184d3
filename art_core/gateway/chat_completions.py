"""``/v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response

from art_core.chat.protocol import Delta
from art_core.gateway.access import Caller, Door
from art_core.gateway.answers import Answer, Choice
from art_core.gateway.call import Call
from art_core.gateway.choice_run import Piece
from art_core.gateway.fields import SamplingFields, read_fields
from art_core.gateway.http import EventStream, read_body
from art_core.gateway.logprobs import chat_logprobs
from art_core.gateway.problems import invalid
from art_core.gateway.prompts import chat_prompt
from art_core.gateway.sampling import sampling_of
from art_core.gateway.serving import Order, respond, start_call
from art_core.trajectories import Completion, Message, Tool

_UNCHANGING: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "function_call": ("auto", "none"),
    "functions": ([],),
    "modalities": (["text"],),
    "parallel_tool_calls": (True,),
    "response_format": ({"type": "text"},),
    "web_search_options": (),
}


class ChatFields(SamplingFields):
    """A chat request."""

    messages: Annotated[list[Message], Field(min_length=1)]
    tools: list[Tool] | None = None
    tool_choice: JsonValue = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None

    def offered_tools(self) -> list[Tool] | None:
        """The tools that the model is told of.

        Raises:
            Problem: a tool choice that can't be forced.
        """
        if self.tool_choice not in (None, "auto", "none"):
            raise invalid(
                "tool_choice",
                f"{self.tool_choice!r:.100} can't be honoured here; send 'auto' or 'none'",
                "unsupported_parameter",
            )
        return None if self.tool_choice == "none" else self.tools or None

    def most_tokens(self) -> int | None:
        """Raises Problem: the two fields for it contradict each other."""
        asked = {each for each in (self.max_tokens, self.max_completion_tokens) if each}
        if len(asked) > 1:
            raise invalid(
                "max_tokens",
                f"{self.max_tokens} contradicts max_completion_tokens {self.max_completion_tokens}",
            )
        return asked.pop() if asked else None


class ChatCompletions:
    """The endpoint."""

    def __init__(self, door: Door, max_body_bytes: int) -> None:
        self._door = door
        self._max_body_bytes = max_body_bytes

    async def __call__(self, request: Request) -> Response:
        body = await read_body(request, self._max_body_bytes)
        fields = read_fields(ChatFields, body, _UNCHANGING)
        caller = self._door.caller(request, fields.model)
        call = await start_call(request, body, _order(fields, caller))
        answer = _Answer(fields, call)
        if fields.stream:
            return EventStream(call, answer.events())
        return await respond(request, call, answer.whole)


def _order(fields: ChatFields, caller: Caller) -> Order:
    chat, rollout = caller.policy.chat, caller.rollout
    tools = fields.offered_tools()
    conversations = None if rollout is None else rollout.conversations
    return Order(
        caller=caller,
        prompt=chat_prompt(chat, fields.messages, tools, conversations),
        sampling=sampling_of(
            fields,
            caller,
            max_tokens=fields.most_tokens(),
            top_logprobs=(fields.top_logprobs or 0) if fields.logprobs else 0,
        ),
        seed=fields.seed,
        n=fields.n or 1,
        parser_of=lambda choice, sampling: chat.stream_parser(
            tools, call_id_seed=choice, stop=sampling.stop
        ),
        streamed=bool(fields.stream),
    )


class _Answer(Answer):
    """A call as a chat completion."""

    def __init__(self, fields: ChatFields, call: Call) -> None:
        kind = "chat.completion.chunk" if fields.stream else "chat.completion"
        super().__init__(fields, call, id_prefix="chatcmpl", kind=kind)
        self._wants_logprobs = bool(fields.logprobs)

    def _whole_choice(self, completion: Completion, sampled: Piece) -> Choice:
        message = {"refusal": None, **completion.response}
        return {"message": message, "logprobs": self._logprobs(sampled)}

    def _openings(self) -> Iterable[Choice]:
        return (
            {"delta": {"role": "assistant", "content": ""}, "logprobs": None}
            for _ in self._call.choices
        )

    def _part(self, piece: Piece) -> Choice | None:
        if not piece.delta and not (self._wants_logprobs and piece.token_ids):
            return None
        return {"delta": _delta(piece.delta), "logprobs": self._logprobs(piece)}

    def _nothing(self) -> Choice:
        return {"delta": {}, "logprobs": None}

    def _logprobs(self, sampled: Piece) -> dict[str, Any] | None:
        return chat_logprobs(self._chat, sampled) if self._wants_logprobs else None


def _delta(delta: Delta) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if delta.content:
        fields["content"] = delta.content
    if delta.reasoning:
        fields["reasoning_content"] = delta.reasoning
    if delta.tool_calls:
        fields["tool_calls"] = delta.tool_calls
    return fields
