"""The agent: ask the model, call the tools that it asks for, until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from art_core.config import Config, PositiveFloat, PositiveInt
from art_core.trajectories import Message
from integrations.mcp.toolbox import Toolbox

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageFunctionToolCall

Stopped = Literal["answered", "max_turns", "max_tokens", "context_length"]
"""Why a run ended; all but the first are limits that cut it off."""


class Limits(Config):
    """What one run of the agent may use."""

    max_turns: PositiveInt = 10
    """Calls of the model."""
    max_tokens: PositiveInt | None = None
    """Of one answer of the model; None: what the server allows."""
    max_calls_per_turn: PositiveInt = 16
    """Tools called in one turn; the model is told of those that weren't."""
    parallel_calls: bool = True
    """Whether the calls of one turn run at once; else the model is held to one a turn."""
    tool_timeout: PositiveFloat = 60.0
    """Seconds for one call of a tool."""
    max_result_characters: PositiveInt = 8_000
    """Of a tool's result; the model is told how much was cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """How a run went; its calls are in the toolbox."""

    messages: list[Message]
    answer: str
    """The last thing the model said; empty where it was cut off before."""
    turns: int
    stopped: Stopped


async def run_agent(
    client: AsyncOpenAI,
    model: str,
    messages: Sequence[Message],
    toolbox: Toolbox,
    limits: Limits,
    **sampling: Any,
) -> AgentRun:
    """Run the loop on ``messages``, with any OpenAI-compatible client.

    Raises:
        ToolServerDiedError: a server died; the run can't be gone on with.
        openai.APIError: the model's server failed.
    """
    said = list(messages)
    for turn in range(1, limits.max_turns + 1):
        await toolbox.refresh_if_changed()
        choice = await _ask(client, model, said, toolbox, limits, sampling)
        if choice is None:
            return AgentRun(messages=said, answer="", turns=turn, stopped="context_length")
        message = choice.message
        said.append(_as_message(message))
        calls = _calls(message)
        if not calls:
            stopped: Stopped = "max_tokens" if choice.finish_reason == "length" else "answered"
            answer = message.content or ""
            return AgentRun(messages=said, answer=answer, turns=turn, stopped=stopped)
        said += await _call_all(calls, toolbox, limits)
    return AgentRun(messages=said, answer="", turns=limits.max_turns, stopped="max_turns")


async def _ask(
    client: AsyncOpenAI,
    model: str,
    messages: list[Message],
    toolbox: Toolbox,
    limits: Limits,
    sampling: dict[str, Any],
) -> Any:
    """The model's choice; None: the conversation has outgrown its context."""
    import openai

    options: dict[str, Any] = dict(sampling)
    if toolbox.tools:
        options["tools"] = toolbox.tools
        if not limits.parallel_calls:
            options["parallel_tool_calls"] = False
    if limits.max_tokens is not None:
        options["max_completion_tokens"] = limits.max_tokens
    try:
        create: Any = client.chat.completions.create
        response = await create(model=model, messages=messages, **options)
    except openai.BadRequestError as error:
        if error.code == "context_length_exceeded":
            return None
        raise
    return response.choices[0]


def _as_message(message: ChatCompletionMessage) -> Message:
    """As it came, so that the server recognises its own words."""
    return message.model_dump(mode="json", exclude_none=True)


def _calls(message: ChatCompletionMessage) -> list[ChatCompletionMessageFunctionToolCall]:
    return [call for call in message.tool_calls or () if call.type == "function"]


async def _call_all(
    calls: Sequence[ChatCompletionMessageFunctionToolCall], toolbox: Toolbox, limits: Limits
) -> list[Message]:
    one_at_a_time = asyncio.Semaphore(len(calls) if limits.parallel_calls else 1)

    async def result(number: int, call: ChatCompletionMessageFunctionToolCall) -> Message:
        if number >= limits.max_calls_per_turn:
            text = f"Error: not called; at most {limits.max_calls_per_turn} calls a turn"
        else:
            async with one_at_a_time:
                text = (await toolbox.call(call.function.name, call.function.arguments)).result
        return {"role": "tool", "tool_call_id": call.id, "content": text}

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(result(i, call)) for i, call in enumerate(calls)]
    return [task.result() for task in tasks]
