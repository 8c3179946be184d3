"""``/v1/responses``: create, stream, function tools, instructions, previous_response_id."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response

from art_core.gateway.access import Caller, Door
from art_core.gateway.fields import SamplingFields, read_fields
from art_core.gateway.http import EventStream, read_body
from art_core.gateway.kept import KeptResponses
from art_core.gateway.problems import Problem, invalid
from art_core.gateway.prompts import chat_prompt
from art_core.gateway.responses_answer import ResponsesAnswer
from art_core.gateway.responses_input import Item, chat_tools, messages_of_input
from art_core.gateway.sampling import sampling_of
from art_core.gateway.serving import Order, respond, start_call
from art_core.trajectories import Completion, Message

LOGPROBS = "message.output_text.logprobs"

_UNCHANGING: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "conversation": (),
    "max_tool_calls": (),
    "parallel_tool_calls": (True,),
    "prompt": (),
    "truncation": ("disabled",),
}
_ECHOED = ("instructions", "max_output_tokens", "previous_response_id", "temperature", "top_p")


class ResponsesFields(SamplingFields):
    """A request of the Responses API."""

    input: str | Annotated[list[Item], Field(min_length=1)]
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[Item] | None = None
    tool_choice: JsonValue = None
    text: dict[str, JsonValue] | None = None
    reasoning: dict[str, JsonValue] | None = None
    """Effort and summary: hints that these models don't know."""
    include: list[str] | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    def refuse_what_cannot_be_honoured(self) -> None:
        """Raises Problem: names the field."""
        if self.n not in (None, 1):
            raise invalid("n", "a response has one choice", "unsupported_parameter")
        if self.tool_choice not in (None, "auto", "none"):
            raise invalid(
                "tool_choice",
                f"{self.tool_choice!r:.100} can't be honoured here; send 'auto' or 'none'",
                "unsupported_parameter",
            )
        text_format = (self.text or {}).get("format")
        if text_format not in (None, {"type": "text"}):
            raise invalid(
                "text.format",
                f"{text_format!r:.100} can't be honoured here; leave it out",
                "unsupported_parameter",
            )


class Responses:
    """The endpoint."""

    def __init__(self, door: Door, max_body_bytes: int) -> None:
        self._door = door
        self._max_body_bytes = max_body_bytes

    async def __call__(self, request: Request) -> Response:
        body = await read_body(request, self._max_body_bytes)
        fields = read_fields(ResponsesFields, body, _UNCHANGING)
        fields.refuse_what_cannot_be_honoured()
        caller = self._door.caller(request, fields.model)
        kept = caller.policy.responses if caller.rollout is None else caller.rollout.responses
        conversation = _conversation(fields, kept)
        call = await start_call(request, body, _order(fields, caller, conversation))

        def keep(completion: Completion) -> None:
            if fields.store is not False:
                kept.keep(answer.id, [*conversation, completion.response])

        answer = ResponsesAnswer(call, _settings(fields), logprobs=_logprobs(fields), keep=keep)
        if fields.stream:
            return EventStream(call, answer.events())
        return await respond(request, call, answer.whole)


def _conversation(fields: ResponsesFields, kept: KeptResponses) -> list[Message]:
    """All messages but the instructions, which hold for one request only."""
    new = messages_of_input(fields.input)
    if fields.previous_response_id is None:
        return new
    before = kept.get(fields.previous_response_id)
    if before is None:
        raise Problem(
            status=404,
            message=f"Previous response {fields.previous_response_id!r:.100} was not found: it "
            "belongs to another rollout, was made with store=false, or never was.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return [*before, *new]


def _order(fields: ResponsesFields, caller: Caller, conversation: list[Message]) -> Order:
    chat, rollout = caller.policy.chat, caller.rollout
    tools = None if fields.tool_choice == "none" else chat_tools(fields.tools)
    messages: list[Message] = list(conversation)
    if fields.instructions:
        messages.insert(0, {"role": "system", "content": fields.instructions})
    return Order(
        caller=caller,
        prompt=chat_prompt(
            chat, messages, tools, None if rollout is None else rollout.conversations
        ),
        sampling=sampling_of(
            fields,
            caller,
            max_tokens=fields.max_output_tokens or fields.max_tokens,
            top_logprobs=(fields.top_logprobs or 0) if _logprobs(fields) else 0,
        ),
        seed=fields.seed,
        n=1,
        parser_of=lambda choice, sampling: chat.stream_parser(
            tools, call_id_seed=choice, stop=sampling.stop
        ),
        streamed=bool(fields.stream),
    )


def _logprobs(fields: ResponsesFields) -> bool:
    return LOGPROBS in (fields.include or ())


def _settings(fields: ResponsesFields) -> dict[str, Any]:
    """What the answer repeats of the request."""
    return {
        "model": fields.model,
        **{name: getattr(fields, name) for name in _ECHOED},
        "metadata": fields.metadata or {},
        "parallel_tool_calls": True,
        "reasoning": {"effort": None, "summary": None},
        "store": fields.store is not False,
        "text": {"format": {"type": "text"}},
        "tool_choice": fields.tool_choice or "auto",
        "tools": fields.tools or [],
        "truncation": "disabled",
    }
