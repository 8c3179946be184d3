"""Messages of the openai, langchain and litellm kinds, brought into one form.

`normalise` is where every request passes once; templates and formats see `Turn`
objects only. `canonical_key` tells whether two messages are the same to a model,
whatever a client did to ours before sending it back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from art_core.chat.turns import ROLES, Call, Role, Turn, parse_json
from art_core.errors import ChatError
from art_core.trajectories import Message, Tool

_LANGCHAIN_ROLES = {"human": "user", "ai": "assistant"}
_TEXT_PARTS = ("text", "input_text", "output_text")
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")


def normalise(messages: Sequence[Message]) -> list[Turn]:
    """The conversation as turns; tool results in the order of the calls they answer.

    Raises:
        ChatError: something in it has no meaning to a text model (an image, an
            unknown role, a result that answers no call); names the message.
    """
    if not messages:
        raise ChatError("messages is empty", "A conversation needs at least one message.")
    turns = [_turn(message, f"messages[{index}]") for index, message in enumerate(messages)]
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
    turn = _turn(message, "message")
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


def _turn(message: object, where: str) -> Turn:
    fields = _fields(message, where)
    role = _role(fields, where)
    text, from_parts = _content(fields.get("content"), role, where)
    if role == "assistant":
        return _assistant(fields, text, from_parts, where)
    return Turn(
        role=role,
        text=text,
        name=_string(fields.get("name"), f"{where}.name"),
        call_id=_string(fields.get("tool_call_id"), f"{where}.tool_call_id"),
    )


def _fields(message: object, where: str) -> Mapping[str, Any]:
    if isinstance(message, Mapping):
        return cast("Mapping[str, Any]", message)
    dump = getattr(message, "model_dump", None)  # message objects of openai, litellm, langchain
    if callable(dump):
        return cast("Mapping[str, Any]", dump())
    raise ChatError(
        f"{where} is {type(message).__name__}",
        "A message must be an object with 'role' and 'content'.",
    )


def _role(fields: Mapping[str, Any], where: str) -> Role:
    role = fields.get("role") or fields.get("type")
    if isinstance(role, str):
        role = _LANGCHAIN_ROLES.get(role, role)
        if role == "function":  # the deprecated form of a tool result
            return "tool"
        if role in ROLES:
            return role
    raise ChatError(f"{where} has role {role!r}", f"Use one of: {', '.join(ROLES)}.")


def _assistant(fields: Mapping[str, Any], text: str, from_parts: _Parts, where: str) -> Turn:
    if fields.get("audio"):
        raise ChatError(f"{where}.audio is set", "Only text reaches the model: leave audio out.")
    refusal = fields.get("refusal")
    if not text and isinstance(refusal, str):
        text = refusal
    calls = [
        _call(item, f"{where}.tool_calls[{index}]")
        for index, item in enumerate(fields.get("tool_calls") or from_parts.calls)
    ]
    if not calls and fields.get("function_call"):
        calls = [_call({"function": fields["function_call"]}, f"{where}.function_call")]
    reasoning = next(
        (fields[key] for key in _REASONING_FIELDS if isinstance(fields.get(key), str)), ""
    )
    return Turn(
        role="assistant",
        text=text,
        name=_string(fields.get("name"), f"{where}.name"),
        calls=tuple(calls),
        reasoning=reasoning or from_parts.reasoning,
    )


def _call(item: object, where: str) -> Call:
    """A call as openai (``function``), langchain (``args``) or anthropic (``input``) spell it."""
    fields = _fields(item, where)
    if fields.get("type") == "custom":
        raise ChatError(f"{where} is a custom tool call", "Only function tools can be expressed.")
    function = _fields(fields.get("function") or fields, where)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ChatError(f"{where} has the name {name!r}", "A tool call needs a function name.")
    arguments = next(
        (function[key] for key in ("arguments", "args", "input") if function.get(key) is not None),
        None,
    )
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        arguments = "{}"
    elif not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return Call(id=_string(fields.get("id"), f"{where}.id"), name=name, arguments=arguments)


class _Parts:
    """What a list of content parts holds besides text."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.reasoning = ""


def _content(content: object, role: Role, where: str) -> tuple[str, _Parts]:
    """The text of a message's content. Text parts are joined with newlines, as vLLM does."""
    parts = _Parts()
    if content is None:
        return "", parts
    if isinstance(content, str):
        return content, parts
    items = cast("list[object]", content) if isinstance(content, list) else None
    if role == "tool" and not (items is not None and all(map(_looks_like_part, items))):
        # Tools of some frameworks answer with plain objects.
        return json.dumps(cast("object", content), ensure_ascii=False), parts
    if items is None:
        raise ChatError(
            f"{where}.content isn't text: {content!r:.80}", "Use a string or a list of text parts."
        )
    texts = (_part(item, parts, f"{where}.content[{index}]") for index, item in enumerate(items))
    return "\n".join([text for text in texts if text is not None]), parts


def _looks_like_part(item: object) -> bool:
    return isinstance(item, str) or (isinstance(item, Mapping) and "type" in item)


def _part(item: object, parts: _Parts, where: str) -> str | None:
    if isinstance(item, str):
        return item
    fields = _fields(item, where)
    kind = fields.get("type")
    if kind in _TEXT_PARTS and isinstance(fields.get("text"), str):
        return fields["text"]
    if kind == "refusal" and isinstance(fields.get("refusal"), str):
        return fields["refusal"]
    if kind in ("thinking", "reasoning"):
        parts.reasoning += str(fields.get("thinking") or fields.get("reasoning") or "")
        return None
    if kind == "tool_use":
        parts.calls.append(fields)
        return None
    raise ChatError(f"{where} is of type {kind!r}", "Only text reaches the model.")


def _string(value: object, where: str) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    raise ChatError(f"{where} is {value!r:.80}", "It must be a string.")


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
    fields = _fields(tool, where)
    kind = fields.get("type", "function")
    # The Responses API and some SDKs leave the function's fields at the top.
    function = _fields(fields.get("function", fields), where)
    name = function.get("name")
    if kind != "function" or not isinstance(name, str) or not name:
        raise ChatError(f"{where} is {dict(fields)!r:.200}", "Tools must be functions with a name.")
    kept = {key: value for key, value in function.items() if value is not None and key != "type"}
    kept.setdefault("description", "")
    kept.setdefault("parameters", {"type": "object", "properties": {}})
    return {"type": "function", "function": kept}
