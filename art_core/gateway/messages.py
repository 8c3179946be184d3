"""Anthropic's ``/v1/messages``: whole, streamed, with tools."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response

from art_core.gateway.access import Caller, Door
from art_core.gateway.bodies import Bodies
from art_core.gateway.demands import Demands, schema_demanded, tools_demanded
from art_core.gateway.fields import LONGEST_STOP, MOST_STOPS, SamplingFields, read_fields
from art_core.gateway.http import EventStream
from art_core.gateway.messages_answer import MessagesAnswer, error_body
from art_core.gateway.messages_input import Block, chat_messages, chat_tools, system_message
from art_core.gateway.problems import invalid
from art_core.gateway.prompts import chat_prompt
from art_core.gateway.sampling import sampling_of
from art_core.gateway.serving import Order, ordered, respond, start_call

_UNCHANGING: dict[str, tuple[Any, ...]] = {"container": (), "mcp_servers": ([],)}


class MessagesFields(SamplingFields):
    """A request of Anthropic's Messages API."""

    messages: Annotated[list[Block], Field(min_length=1)]
    system: str | list[Block] | None = None
    tools: list[Block] | None = None
    tool_choice: dict[str, JsonValue] | None = None
    stop_sequences: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=LONGEST_STOP)]],
            Field(max_length=MOST_STOPS),
        ]
        | None
    ) = None
    thinking: dict[str, JsonValue] | None = None
    """A budget, which these models don't know: they think or don't by themselves."""
    output_config: dict[str, JsonValue] | None = None

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return (*super().stop_strings, *(self.stop_sequences or ()))

    def demands(self) -> Demands:
        """Raises Problem: something is demanded that can't be."""
        if self.max_tokens is None:
            raise invalid("max_tokens", "is missing", "missing_required_parameter")
        if self.n not in (None, 1):
            raise invalid("n", "a message has one choice", "unsupported_parameter")
        asked = self.tool_choice or {}
        choice = _CHOICES.get(str(asked.get("type", "auto")))
        if choice is None:
            raise invalid("tool_choice", f"{asked!r:.100}: the type must be {', '.join(_CHOICES)}")
        demanded = tools_demanded(
            chat_tools(self.tools),
            choice,
            asked.get("name"),
            one_call=bool(asked.get("disable_parallel_tool_use")),
        )
        given = (self.output_config or {}).get("format")
        schema = schema_demanded("output_config.format", given if isinstance(given, dict) else None)
        return replace(demanded, schema=schema)


_CHOICES = {"auto": "auto", "none": "none", "any": "required", "tool": "named"}


class Messages:
    """The endpoint."""

    def __init__(self, door: Door, bodies: Bodies) -> None:
        self._door = door
        self._bodies = bodies

    async def __call__(self, request: Request) -> Response:
        body = await self._bodies.read(request)
        fields = read_fields(MessagesFields, body, _UNCHANGING)
        caller = self._door.caller(request, fields.model)
        order = await ordered(body, _order, fields, caller)
        call = await start_call(request, body, order)
        answer = MessagesAnswer(call, fields.model)
        if fields.stream:
            return EventStream(call, answer.events(), error_body)
        return await respond(request, call, answer.whole)


def _order(fields: MessagesFields, caller: Caller) -> Order:
    chat, rollout = caller.policy.chat, caller.rollout
    demands = fields.demands()
    tools = demands.tools
    messages = [*system_message(fields.system), *chat_messages(fields.messages)]
    return Order(
        caller=caller,
        prompt=chat_prompt(
            chat, messages, tools, None if rollout is None else rollout.conversations
        ),
        sampling=sampling_of(
            fields,
            caller,
            max_tokens=fields.max_tokens,
            top_logprobs=0,
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
