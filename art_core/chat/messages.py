"""Reads one message, whichever client wrote it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from art_core.chat.turns import ROLES, Call, Role, Turn
from art_core.errors import ChatError

_LANGCHAIN_ROLES = {"human": "user", "ai": "assistant"}
_TEXT_PARTS = ("text", "input_text", "output_text")
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")


def read_turn(message: object, where: str) -> Turn:
    """A message as a turn; ``where`` names it in errors.

    Raises:
        ChatError: it has no meaning to a text model.
    """
    fields = fields_of(message, where)
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


def fields_of(message: object, where: str) -> Mapping[str, Any]:
    """The fields of a dictionary, or of a message object of openai, litellm or langchain.

    Raises:
        ChatError: it is neither.
    """
    if isinstance(message, Mapping):
        return cast("Mapping[str, Any]", message)
    dump = getattr(message, "model_dump", None)
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
    items: object = fields.get("tool_calls") or from_parts.calls
    if not isinstance(items, list | tuple):
        raise ChatError(f"{where}.tool_calls is {items!r:.80}", "It must be a list of calls.")
    calls = [
        _call(item, f"{where}.tool_calls[{index}]")
        for index, item in enumerate(cast("Sequence[object]", items))
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
    fields = fields_of(item, where)
    if fields.get("type") == "custom":
        raise ChatError(f"{where} is a custom tool call", "Only function tools can be expressed.")
    function = fields_of(fields.get("function") or fields, where)
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
    fields = fields_of(item, where)
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
