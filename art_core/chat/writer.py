"""What writes conversations: a Jinja template, or a renderer of the renderers library."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

from art_core.chat.turns import Turn, arguments_object
from art_core.errors import ChatError
from art_core.trajectories import Tool

ArgumentsForm = Literal["object", "texts", "named nulls", "python", "string"]
"""What a writer wants ``arguments`` to be:

- ``object``: a JSON object.
- ``texts``: an object whose values are already text, because it would print a
  value that isn't text as Python does (``True``).
- ``named nulls``: an object with `NULL` for its nulls, because it would print
  Python's None; what comes out as a string `NULL` is put right afterwards.
- ``python``: an object whose strings are escaped as in a Python literal.
- ``string``: the object's JSON.
"""
NULL = "null" + "".join(chr(0x100000 + secrets.randbelow(0xFFF0)) for _ in range(3))
"""Stands for null; no text holds it, for it is made up anew in each process."""
ContentForm = Literal["string", "parts"]
ToolsForm = Literal["object", "texts"]
"""How a tool's definition is given: as it is, or with ``true`` for True where it is printed."""
ARGUMENTS_FORMS: tuple[ArgumentsForm, ...] = ("object", "texts", "named nulls", "python", "string")
CONTENT_FORMS: tuple[ContentForm, ...] = ("string", "parts")
TOOLS_FORMS: tuple[ToolsForm, ...] = ("object", "texts")


@dataclass(slots=True, kw_only=True)
class Forms:
    """What a writer wants to be given."""

    content: ContentForm = "string"
    arguments: ArgumentsForm = "object"
    tools: ToolsForm = "object"


class Writer(Protocol):
    """Writes conversations, given in the forms it is set to."""

    @property
    def forms(self) -> Forms: ...

    @property
    def source(self) -> str:
        """What is known of how it writes: a template's source, or nothing."""
        ...

    def text(self, turns: Sequence[Turn], tools: Sequence[Tool], *, generation: bool) -> str:
        """Marked text of the conversation, and of the assistant's opening if ``generation``.

        Raises:
            ChatError: it can't write this conversation.
        """
        ...


def as_messages(turns: Sequence[Turn], forms: Forms, source: str = "") -> list[dict[str, Any]]:
    """Turns as the dictionaries that templates read.

    Raises:
        ChatError: a call's arguments aren't a JSON object.
    """
    return [_message(turn, f"messages[{at}]", forms, source) for at, turn in enumerate(turns)]


def as_tools(tools: Sequence[Tool], form: ToolsForm) -> list[Any] | None:
    """Tools as templates read them; None for no tools."""
    if not tools:
        return None
    return [_texts(tool) for tool in tools] if form == "texts" else list(tools)


def _texts(value: Any) -> Any:
    """``value`` with its booleans and nulls as text."""
    if isinstance(value, dict):
        return {key: _texts(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_texts(item) for item in cast("list[Any]", value)]
    return _dump(value) if value is None or isinstance(value, bool) else value


def _message(turn: Turn, where: str, forms: Forms, source: str) -> dict[str, Any]:
    role = "system" if turn.role == "developer" and "developer" not in source else turn.role
    message: dict[str, Any] = {"role": role, "content": turn.text}
    if forms.content == "parts":
        message["content"] = [{"type": "text", "text": turn.text}]
    if turn.name is not None:
        message["name"] = turn.name
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
        if "thinking" in source:
            message["thinking"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call.id or f"call_{at}",
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": _arguments(
                        call.arguments,
                        forms.arguments,
                        f"{where}.tool_calls[{at}].function.arguments",
                    ),
                },
            }
            for at, call in enumerate(turn.calls)
        ]
    if turn.call_id is not None:
        message["tool_call_id"] = turn.call_id
    return message


def _arguments(arguments: str, form: ArgumentsForm, where: str) -> Any:
    value = arguments_object(arguments)
    if value is None:
        raise ChatError(
            f"{where} is {arguments!r:.200}",
            "This chat template can only express arguments that are a JSON object.",
        )
    match form:
        case "object":
            return value
        case "string":
            return json.dumps(value, ensure_ascii=False)
        case "texts":
            return {k: v if isinstance(v, str) else _dump(v) for k, v in value.items()}
        case "named nulls":
            return {k: _named_nulls(v) for k, v in value.items()}
        case "python":
            return {k: _escaped(v) if isinstance(v, str) else v for k, v in value.items()}


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _named_nulls(value: Any) -> Any:
    if value is None:
        return NULL
    if isinstance(value, dict):
        return {key: _named_nulls(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_named_nulls(item) for item in cast("list[Any]", value)]
    return value


def _escaped(text: str) -> str:
    escapes = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(escapes.get(char, char) for char in text)


def refused(error: Exception) -> ChatError:
    """The error for a conversation that a writer fails on."""
    return ChatError(
        f"the chat template refuses this conversation: {error}",
        "Change the messages, or use a model whose template can express them.",
    )


def nine_characters(call_id: str) -> str:
    """A call's id in the form that Mistral's templates insist on."""
    if len(call_id) == 9 and call_id.isalnum():
        return call_id
    return hashlib.blake2b(call_id.encode(), digest_size=5).hexdigest()[:9]
