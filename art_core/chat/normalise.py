"""Messages of the openai, langchain and litellm kinds, brought into one form.

`normalise` is where every request passes once; templates and formats see `Turn`
objects only. `canonical_key` tells whether two messages are the same to a model,
whatever a client did to ours before sending it back.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from art_core.chat.messages import fields_of, read_turn
from art_core.chat.turns import Call, Turn, parse_json
from art_core.errors import ChatError
from art_core.trajectories import Message, Tool


def normalise(messages: Sequence[Message]) -> list[Turn]:
    """The conversation as turns; tool results in the order of the calls they answer.

    Raises:
        ChatError: something in it has no meaning to a text model (an image, an
            unknown role, a result that answers no call); names the message.
    """
    if not messages:
        raise ChatError("messages is empty", "A conversation needs at least one message.")
    turns = [read_turn(message, f"messages[{index}]") for index, message in enumerate(messages)]
    return _results_in_call_order(turns)


def normalise_tools(tools: Sequence[Tool] | None) -> list[Tool]:
    """Tools as chat templates expect them; a missing description or schema is filled in empty.

    Raises:
        ChatError: a tool that isn't a function, or has no name, or parameters that aren't a schema.
    """
    return [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools or [])]


def canonical_key(message: Message) -> str:
    """A key that is equal for messages which mean the same to a model.

    Blind to what clients change when they send a response back: argument
    spacing, key order and escapes, ``1.0`` for ``1`` (but not ``true`` for ``1``),
    missing nulls, extra fields of SDKs, empty or null content beside tool calls,
    one text part for a string, and whether reasoning came along. Tool-call ids
    and all text count.

    Raises:
        ChatError: as `normalise`.
    """
    turn = read_turn(message, "message")
    calls = [(call.id, call.name, _arguments_key(call)) for call in turn.calls]
    role = "system" if turn.role == "developer" else turn.role
    name = turn.name if turn.role in ("system", "developer", "user") else None
    return json.dumps([role, name, turn.text, calls, turn.call_id])


def _arguments_key(call: Call) -> str:
    try:
        value = parse_json(call.arguments)
    except ValueError:
        return call.arguments.strip()
    return json.dumps(_same_numbers(value), sort_keys=True)


def _same_numbers(value: Any) -> Any:
    """``value`` with whole floats as integers: JavaScript clients know no difference."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: _same_numbers(item) for key, item in fields.items()}
    if isinstance(value, list):
        return [_same_numbers(item) for item in cast("list[Any]", value)]
    return value


def _results_in_call_order(turns: Sequence[Turn]) -> list[Turn]:
    ordered: list[Turn] = []
    calls = _Unanswered(())
    block: list[tuple[int, Turn]] = []  # the results that follow one assistant turn, with places
    for index, turn in enumerate(turns):
        if turn.role == "tool":
            place = calls.answered_by(turn, index)
            call = calls.calls[place]
            name, call_id = turn.name or call.name, turn.call_id or call.id
            block.append((place, replace(turn, name=name, call_id=call_id)))
            continue
        ordered += _sorted_block(block)
        block = []
        calls = _Unanswered(turn.calls if turn.role == "assistant" else calls.calls)
        ordered.append(turn)
    return ordered + _sorted_block(block)


def _sorted_block(block: Iterable[tuple[int, Turn]]) -> list[Turn]:
    return [turn for _, turn in sorted(block, key=lambda item: item[0])]


class _Unanswered:
    """The calls of one turn, and which of them await a result."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = calls
        self._taken: set[int] = set()
        self._waiting: dict[tuple[str, str | None], deque[int]] = {}
        self._first_with_id: dict[str | None, int] = {}
        for place, call in enumerate(calls):
            for key in (("id", call.id), ("name", call.name), ("any", None)):
                self._waiting.setdefault(key, deque()).append(place)
            self._first_with_id.setdefault(call.id, place)

    def answered_by(self, turn: Turn, index: int) -> int:
        """The place of the call that a tool result answers: by id, else by name, else the next."""
        if turn.call_id is not None:
            place = self._next(("id", turn.call_id))
            place = self._first_with_id.get(turn.call_id) if place is None else place
        elif turn.name is not None:
            place = self._next(("name", turn.name))
        else:
            place = self._next(("any", None))
        if place is None:
            raise ChatError(
                f"messages[{index}] is a tool result for "
                f"{turn.call_id or turn.name or 'no call'!r}, "
                "which the assistant message before it didn't call",
                "Keep the assistant message with the tool calls in front of their results.",
            )
        self._taken.add(place)
        return place

    def _next(self, key: tuple[str, str | None]) -> int | None:
        waiting = self._waiting.get(key, deque())
        while waiting:
            place = waiting.popleft()
            if place not in self._taken:
                return place
        return None


def _tool(tool: object, where: str) -> Tool:
    fields = fields_of(tool, where)
    kind = fields.get("type", "function")
    # The Responses API and some SDKs leave the function's fields at the top.
    function = fields_of(fields.get("function", fields), where)
    name = function.get("name")
    if kind != "function" or not isinstance(name, str) or not name:
        raise ChatError(f"{where} is {dict(fields)!r:.200}", "Tools must be functions with a name.")
    kept = {key: value for key, value in function.items() if value is not None and key != "type"}
    kept.setdefault("description", "")
    if not isinstance(kept.setdefault("parameters", {"type": "object", "properties": {}}), Mapping):
        raise ChatError(
            f"{where}.function.parameters is {kept['parameters']!r:.80}",
            "It must be a JSON schema: an object.",
        )
    return {"type": "function", "function": kept}
