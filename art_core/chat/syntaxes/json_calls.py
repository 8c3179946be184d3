"""Tool calls written as JSON objects: ``{"name": …, "arguments": …}`` between markers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from json import JSONDecodeError, JSONDecoder
from typing import Any, cast

from art_core.chat.grammar import CallSyntaxError, ToolTypes
from art_core.chat.turns import Call, parse_json

_DECODER = JSONDecoder()
_NAME_KEYS = ("name", "tool_name")
_ARGUMENT_KEYS = ("arguments", "parameters", "args")
_ID_KEYS = ("id", "tool_call_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonCalls:
    """One object, or with ``many`` a list of objects (or one), between two markers."""

    name: str
    open: str
    close: str = "(?!)"
    inner: str = "(?!)"
    many: bool = False
    ends_with_turn: bool = False
    only_at_start: bool = False
    pythonic: bool = False
    with_ids: bool = False
    """The model writes ids of its own."""
    close_is_text: bool = False
    """The closing marker is made of ordinary tokens, so it may also stand in a JSON string."""

    def may_close(self, body: str) -> bool:
        return not (self.close_is_text and inside_string(body))

    def decode(self, opening: Mapping[str, str], body: str, types: ToolTypes) -> list[Call]:
        text = body.strip()
        several = self.many and text.startswith("[")
        items = _spans_of_list(text) if several else [text]
        return [_call(item, with_id=self.with_ids) for item in items]


def inside_string(body: str) -> bool:
    """Whether JSON text breaks off inside a string."""
    inside = escaped = False
    for char in body:
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = inside
        elif char == '"':
            inside = not inside
    return inside


def _call(text: str, *, with_id: bool) -> Call:
    spans = spans_of_object(text)
    name = next((_value(spans[key]) for key in _NAME_KEYS if key in spans), None)
    if not isinstance(name, str) or not name:
        raise CallSyntaxError("no function name", text)
    id_ = next((_value(spans[key]) for key in _ID_KEYS if key in spans), None)
    arguments = next((spans[key] for key in _ARGUMENT_KEYS if key in spans), "{}")
    return Call(
        name=name,
        arguments=checked_arguments(arguments),
        id=id_ if with_id and isinstance(id_, str) and id_ else None,
    )


def checked_arguments(text: str) -> str:
    """``text``, if it is a JSON object (or a string that holds one, as some models write).

    Raises:
        CallSyntaxError: it is neither.
    """
    value = _value(text)
    if isinstance(value, str):
        text, value = value, _value(value)
    if not isinstance(value, dict):
        raise CallSyntaxError("arguments aren't a JSON object", text)
    return text


def _value(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise CallSyntaxError(f"not JSON ({error})", text) from error


def spans_of_object(text: str) -> dict[str, str]:
    """The source text of each value of a JSON object, so that spelling is kept.

    Raises:
        CallSyntaxError: ``text`` isn't a JSON object.
    """
    if not isinstance(_value(text), dict):
        raise CallSyntaxError("not a JSON object", text)
    spans: dict[str, str] = {}
    at = _skip(text, text.index("{") + 1)
    while text[at] != "}":
        key, end = _raw(text, at)
        start = _skip(text, text.index(":", end) + 1)
        _, end = _raw(text, start)
        spans[cast("str", key)] = text[start:end]
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return spans


def _spans_of_list(text: str) -> list[str]:
    if not isinstance(_value(text), list):
        raise CallSyntaxError("not a JSON list", text)
    spans: list[str] = []
    at = _skip(text, text.index("[") + 1)
    while text[at] != "]":
        _, end = _raw(text, at)
        spans.append(text[at:end])
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    if not spans:
        raise CallSyntaxError("an empty list of calls", text)
    return spans


def _raw(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except (JSONDecodeError, RecursionError) as error:
        raise CallSyntaxError(f"not JSON ({error})", text) from error


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at
