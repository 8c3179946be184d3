"""``/v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response

from art_core.chat.protocol import Delta
from art_core.gateway.access import Caller, Door
from art_core.gateway.answers import Answer, Choice
from art_core.gateway.bodies import Bodies
from art_core.gateway.call import Call
from art_core.gateway.choice_run import Piece
from art_core.gateway.demands import Demands, schema_demanded, tools_demanded
from art_core.gateway.fields import SamplingFields, read_fields
from art_core.gateway.http import EventStream
from art_core.gateway.logprobs import chat_logprobs
from art_core.gateway.problems import invalid
from art_core.gateway.prompts import chat_prompt
from art_core.gateway.sampling import sampling_of
from art_core.gateway.serving import Order, ordered, respond, start_call
from art_core.trajectories import Completion, Message, Tool

_UNCHANGING: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "function_call": ("auto", "none"),
    "functions": ([],),
    "modalities": (["text"],),
    "web_search_options": (),
}


class ChatFields(SamplingFields):
    """A chat request."""

    messages: Annotated[list[Message], Field(min_length=1)]
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, JsonValue] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, JsonValue] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None

    def demands(self) -> Demands:
        """Raises Problem: something is demanded that can't be."""
        choice, name = self.tool_choice or "auto", None
        if isinstance(choice, dict):
            function = choice.get("function")
            name = function.get("name") if isinstance(function, dict) else None
            choice = "named" if choice.get("type") == "function" else str(choice.get("type"))
        if choice not in ("auto", "none", "required", "named"):
            raise invalid(
                "tool_choice",
                f"{choice!r:.100} can't be honoured; send auto, none, required or a function",
                "unsupported_parameter",
            )
        demanded = tools_demanded(
            self.tools, choice, name, one_call=self.parallel_tool_calls is False
        )
        given = self.response_format
        if given is not None and given.get("type") == "json_schema":
            given = {"type": "json_schema", **_object(given.get("json_schema"))}
        return replace(demanded, schema=schema_demanded("response_format", given))

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

    def __init__(self, door: Door, bodies: Bodies) -> None:
        self._door = door
        self._bodies = bodies

    async def __call__(self, request: Request) -> Response:
        body = await self._bodies.read(request)
        fields = read_fields(ChatFields, body, _UNCHANGING)
        caller = self._door.caller(request, fields.model)
        order = await ordered(body, _order, fields, caller)
        call = await start_call(request, body, order)
        answer = _Answer(fields, call)
        if fields.stream:
            return EventStream(call, answer.events())
        return await respond(request, call, answer.whole)


def _order(fields: ChatFields, caller: Caller) -> Order:
    chat, rollout = caller.policy.chat, caller.rollout
    demands = fields.demands()
    tools = demands.tools
    conversations = None if rollout is None else rollout.conversations
    return Order(
        caller=caller,
        prompt=chat_prompt(chat, fields.messages, tools, conversations),
        sampling=sampling_of(
            fields,
            caller,
            max_tokens=fields.most_tokens(),
            top_logprobs=(fields.top_logprobs or 0) if fields.logprobs else 0,
            grammar=demands.grammar(chat),
        ),
        seed=fields.seed,
        n=fields.n or 1,
        parser_of=lambda choice, sampling: chat.stream_parser(
            tools, call_id_seed=choice, stop=sampling.stop
        ),
        streamed=bool(fields.stream),
        one_call=demands.one_call,
    )


def _object(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {}


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
