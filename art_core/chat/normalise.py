"""Messages of the openai, langchain and litellm kinds, brought into one form.

`normalise` is where every request passes once; templates and formats see `Turn`
objects only. `canonical_key` tells whether two messages are the same to a model,
whatever a client did to ours before sending it back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
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
        ChatError: a tool that isn't a function, or has no name.
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
    calls: tuple[Call, ...] = ()
    block: list[tuple[int, Turn]] = []  # the results that follow one assistant turn, with places
    for index, turn in enumerate(turns):
        if turn.role == "tool":
            place = _answered_call(turn, calls, taken=[at for at, _ in block], index=index)
            name = turn.name or calls[place].name
            call_id = turn.call_id or calls[place].id
            block.append((place, replace(turn, name=name, call_id=call_id)))
            continue
        ordered += _sorted_block(block)
        block = []
        calls = turn.calls if turn.role == "assistant" else calls
        ordered.append(turn)
    return ordered + _sorted_block(block)


def _sorted_block(block: Iterable[tuple[int, Turn]]) -> list[Turn]:
    return [turn for _, turn in sorted(block, key=lambda item: item[0])]


def _answered_call(turn: Turn, calls: Sequence[Call], *, taken: list[int], index: int) -> int:
    """The place of the call that a tool result answers: by id, else by name, else the next."""
    free = [place for place in range(len(calls)) if place not in taken]
    if turn.call_id is not None:
        matching = [place for place, call in enumerate(calls) if call.id == turn.call_id]
    elif turn.name is not None:
        matching = [place for place in free if calls[place].name == turn.name]
    else:
        matching = free
    matching = [place for place in matching if place in free] or matching
    if not matching:
        raise ChatError(
            f"messages[{index}] is a tool result for {turn.call_id or turn.name or 'no call'!r}, "
            "which the assistant message before it didn't call",
            "Keep the assistant message with the tool calls in front of their results.",
        )
    return matching[0]


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
    kept.setdefault("parameters", {"type": "object", "properties": {}})
    return {"type": "function", "function": kept}
