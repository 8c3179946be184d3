"""``/v1/responses``: create, stream, function tools, instructions, previous_response_id."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response

from art_core.gateway.access import Caller, Door
from art_core.gateway.bodies import Bodies
from art_core.gateway.demands import Demands, schema_demanded, tools_demanded
from art_core.gateway.fields import SamplingFields, read_fields
from art_core.gateway.http import EventStream
from art_core.gateway.kept import KeptResponses
from art_core.gateway.problems import Problem, invalid
from art_core.gateway.prompts import chat_prompt
from art_core.gateway.responses_answer import ResponsesAnswer
from art_core.gateway.responses_input import Item, chat_tools, messages_of_input
from art_core.gateway.sampling import sampling_of
from art_core.gateway.serving import Order, ordered, respond, start_call
from art_core.trajectories import Completion, Message

LOGPROBS = "message.output_text.logprobs"

_UNCHANGING: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "conversation": (),
    "max_tool_calls": (),
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
    tool_choice: str | dict[str, JsonValue] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, JsonValue] | None = None
    reasoning: dict[str, JsonValue] | None = None
    """Effort and summary: hints that these models don't know."""
    include: list[str] | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    def demands(self) -> Demands:
        """Raises Problem: something is demanded that can't be."""
        if self.n not in (None, 1):
            raise invalid("n", "a response has one choice", "unsupported_parameter")
        choice, name = self.tool_choice or "auto", None
        if isinstance(choice, dict):
            name = choice.get("name")
            choice = "named" if choice.get("type") == "function" else str(choice.get("type"))
        if choice not in ("auto", "none", "required", "named"):
            raise invalid(
                "tool_choice",
                f"{choice!r:.100} can't be honoured; send auto, none, required or a function",
                "unsupported_parameter",
            )
        demanded = tools_demanded(
            chat_tools(self.tools), choice, name, one_call=self.parallel_tool_calls is False
        )
        given = (self.text or {}).get("format")
        schema = schema_demanded("text.format", given if isinstance(given, dict) else None)
        return replace(demanded, schema=schema)


class Responses:
    """The endpoint."""

    def __init__(self, door: Door, bodies: Bodies) -> None:
        self._door = door
        self._bodies = bodies

    async def __call__(self, request: Request) -> Response:
        body = await self._bodies.read(request)
        fields = read_fields(ResponsesFields, body, _UNCHANGING)
        caller = self._door.caller(request, fields.model)
        kept = caller.policy.responses if caller.rollout is None else caller.rollout.responses
        conversation = _conversation(fields, kept)
        order = await ordered(body, _order, fields, caller, conversation)
        call = await start_call(request, body, order)

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
    demands = fields.demands()
    tools = demands.tools
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
            grammar=demands.grammar(chat),
        ),
        seed=fields.seed,
        n=1,
        parser_of=lambda choice, sampling: chat.stream_parser(
            tools, call_id_seed=choice, stop=sampling.stop
        ),
        streamed=bool(fields.stream),
        one_call=demands.one_call,
    )


def _logprobs(fields: ResponsesFields) -> bool:
    return LOGPROBS in (fields.include or ())


def _settings(fields: ResponsesFields) -> dict[str, Any]:
    """What the answer repeats of the request."""
    return {
        "model": fields.model,
        **{name: getattr(fields, name) for name in _ECHOED},
        "metadata": fields.metadata or {},
        "parallel_tool_calls": fields.parallel_tool_calls is not False,
        "reasoning": {"effort": None, "summary": None},
        "store": fields.store is not False,
        "text": fields.text or {"format": {"type": "text"}},
        "tool_choice": fields.tool_choice or "auto",
        "tools": fields.tools or [],
        "truncation": "disabled",
    }
