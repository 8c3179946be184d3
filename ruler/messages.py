"""Messages and trajectories as a judge reads them: one JSON object a line, nothing hidden.

What a trajectory says is data. Each message becomes one line of JSON, so text in it
can't start a line of its own; invisible and direction-changing characters, and what
chat templates would take for a control token (``<|im_end|>``, ``[INST]``), are
written as JSON escapes.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import JsonValue

from art_core.trajectories import Message, Tool, Trajectory, as_message

Visible = dict[str, JsonValue]
"""A message as the judge sees it."""

_SHOWN = {"role", "name", "content", "reasoning_content", "reasoning", "refusal", "tool_calls"}
_BOOKKEEPING = {"id", "tool_call_id", "function_call"}
_CONTROL_TOKEN = re.compile(
    r"<(?=[|｜]"
    r"|/?(?:s|bos|eos|pad|unk|think|tool_call|tool_response|start_of_turn|end_of_turn)>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|IMG)\])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One history of a trajectory, as the judge sees it."""

    tools: tuple[Visible, ...]
    messages: tuple[Visible, ...]
    lines: tuple[str, ...]
    """``messages``, each as a line of JSON."""

    @classmethod
    def of(cls, messages: Sequence[Message], tools: Sequence[Tool] | None) -> Self:
        visible = visible_messages(messages)
        return cls(
            tools=visible_tools(tools),
            messages=visible,
            lines=tuple(to_line(message) for message in visible),
        )

    @property
    def first_act(self) -> int:
        """Index of the first assistant message; the number of messages where there is none."""
        return next(iter(self._acts()), len(self.messages))

    @property
    def last_act(self) -> int:
        """Index of the last assistant message; the number of messages where there is none."""
        return next(reversed(self._acts()), len(self.messages))

    def _acts(self) -> list[int]:
        return [i for i, message in enumerate(self.messages) if message["role"] == "assistant"]


def conversations(trajectory: Trajectory) -> tuple[Conversation, ...]:
    """The main conversation, then the others; one that another continues is left out."""
    main = Conversation.of(trajectory.messages(), trajectory.tools)
    found = [main] if main.messages else []
    found += [
        Conversation.of([as_message(item) for item in history.messages_and_choices], history.tools)
        for history in (*trajectory.additional_histories, *trajectory.histories)
    ]
    kept: list[Conversation] = []
    for index, one in enumerate(found):
        later, earlier = found[index + 1 :], found[:index]
        if any(_continues(other, one) for other in later) or any(
            _continues(other, one) or other.lines == one.lines for other in earlier
        ):
            continue
        kept.append(one)
    return tuple(kept)


def _continues(longer: Conversation, shorter: Conversation) -> bool:
    count = len(shorter.messages)
    return len(longer.messages) > count and longer.lines[:count] == shorter.lines


def visible_messages(messages: Sequence[Message]) -> tuple[Visible, ...]:
    """Tool calls are numbered through the conversation instead of showing their random ids."""
    numbers: dict[str, int] = {}
    count = 0

    def number(call_id: JsonValue) -> int:
        nonlocal count
        count += 1
        if isinstance(call_id, str):
            numbers[call_id] = count
        return count

    return tuple(_visible(message, number, numbers) for message in messages)


def _visible(
    message: Message, number: Callable[[JsonValue], int], numbers: dict[str, int]
) -> Visible:
    seen: Visible = {"role": message.get("role")}
    if message.get("name"):
        seen["name"] = message["name"]
    if (call_id := message.get("tool_call_id")) is not None:
        seen["result_of_call"] = numbers.get(str(call_id), "unknown")
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning:
        seen["reasoning"] = reasoning
    if message.get("content"):
        seen["content"] = _visible_content(message["content"])
    if message.get("refusal"):
        seen["refusal"] = message["refusal"]
    calls = message.get("tool_calls") or message.get("function_call")
    if calls:
        listed = calls if isinstance(calls, list) else [calls]
        seen["tool_calls"] = [_visible_call(call, number) for call in listed]
    not_shown: list[JsonValue] = [
        field
        for field, value in sorted(message.items())
        if field not in _SHOWN | _BOOKKEEPING and isinstance(value, dict | list | str) and value
    ]
    if not_shown:
        seen["fields_not_shown"] = not_shown
    return seen


def _visible_call(call: JsonValue, number: Callable[[JsonValue], int]) -> JsonValue:
    if not isinstance(call, dict):
        return {"call": number(None), "malformed": call}
    function = call.get("function") or call.get("custom") or call
    if not isinstance(function, dict):
        return {"call": number(call.get("id")), "malformed": function}
    return {
        "call": number(call.get("id")),
        "name": function.get("name"),
        "arguments": function.get("arguments", function.get("input")),
    }


def _visible_content(content: JsonValue) -> JsonValue:
    if not isinstance(content, list):
        return content
    return [_visible_part(part) for part in content]


def _visible_part(part: JsonValue) -> JsonValue:
    if not isinstance(part, dict):
        return part
    if isinstance(part.get("text"), str):
        return part["text"]
    size = len(json.dumps(part))
    return {"type": part.get("type"), "not_shown": f"{size} characters"}


def visible_tools(tools: Sequence[Tool] | None) -> tuple[Visible, ...]:
    seen: list[Visible] = []
    for tool in tools or ():
        function = tool.get("function", tool)
        if isinstance(function, dict):
            fields = ("name", "description", "parameters")
            seen.append({field: function[field] for field in fields if field in function})
    return tuple(seen)


def to_line(value: JsonValue) -> str:
    """One line of JSON that no reader and no chat template takes for anything but data."""
    return _CONTROL_TOKEN.sub(
        lambda match: _escape(match.group()), _show_invisible(json.dumps(value, ensure_ascii=False))
    )


def _show_invisible(text: str) -> str:
    if text.isprintable():
        return text
    return text.translate({ord(char): _escape(char) for char in set(text) if not _is_visible(char)})


def _is_visible(char: str) -> bool:
    """Whether it shows, or is a space: not a control, format or line-breaking character."""
    return char.isprintable() or unicodedata.category(char) == "Zs"


def _escape(char: str) -> str:
    code = ord(char)
    if code > 0xFFFF:  # JSON spells these as a surrogate pair
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"


def map_strings(value: JsonValue, change: Callable[[str], str]) -> JsonValue:
    """``value`` with every string in it (keys apart) passed through ``change``."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_strings(item, change) for item in value]
    if isinstance(value, dict):
        return {key: map_strings(item, change) for key, item in value.items()}
    return value
