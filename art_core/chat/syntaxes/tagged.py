"""Tool calls written as tags, one for each argument: Qwen3.5, GLM, MiniMax, DeepSeek V4, …"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import regex

from art_core.chat.grammar import CallSyntaxError, ToolTypes
from art_core.chat.turns import Call, parse_json

_PYTHON_CONSTANTS = {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedCalls:
    """``head``, any number of ``parameter``, ``tail``; once or more between `open` and `close`."""

    name: str
    open: str
    close: str
    head: str
    """Group ``name``."""
    parameter: str
    """Groups ``key`` and ``value``, perhaps ``string``: whether the value is one."""
    tail: str = ""
    inner: str = "(?!)"
    newlines: bool = False
    """A newline before and one after a value belong to the layout."""
    ends_with_turn: bool = False
    only_at_start: bool = False
    pythonic: bool = False

    def may_close(self, body: str) -> bool:
        return True

    def decode(self, opening: Mapping[str, str], body: str, types: ToolTypes) -> list[Call]:
        reader = _Reader(body)
        calls: list[Call] = []
        while not reader.done() or not calls:
            wanted = "a parameter or the end of the call" if calls else "a function name"
            name = reader.expect(self.head, wanted)["name"].strip()
            arguments: dict[str, str] = {}
            while (groups := reader.take(self.parameter)) is not None:
                key = groups["key"].strip()
                if key in arguments:
                    raise CallSyntaxError("a parameter is given twice", key)
                value = _without_newlines(groups["value"]) if self.newlines else groups["value"]
                arguments[key] = _json_value(value, types.of(name, key), groups.get("string"))
            reader.expect(self.tail, "a parameter or the end of the call")
            pairs = (f"{json.dumps(k, ensure_ascii=False)}: {v}" for k, v in arguments.items())
            calls.append(Call(name=name, arguments=f"{{{', '.join(pairs)}}}"))
        return calls


class _Reader:
    """Takes patterns off a text; blanks between them don't matter."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._skip_blanks()

    def done(self) -> bool:
        return self._at == len(self._text)

    def take(self, pattern: str) -> dict[str, str] | None:
        match = regex.compile(pattern, regex.DOTALL).match(self._text, self._at)
        if match is None:
            return None
        self._at = match.end()
        self._skip_blanks()
        return {key: value for key, value in match.groupdict().items() if value is not None}

    def expect(self, pattern: str, what: str) -> dict[str, str]:
        groups = self.take(pattern)
        if groups is None:
            raise CallSyntaxError(f"expected {what}", self._text[self._at :])
        return groups

    def _skip_blanks(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1


def _without_newlines(value: str) -> str:
    return value.removeprefix("\n").removesuffix("\n")


def _json_value(value: str, types: frozenset[str], is_string: str | None) -> str:
    """The JSON of a value that stands there as bare text.

    Only the tool's schema tells the text ``"3"`` from the number 3: a parameter
    declared a string stays text; one declared otherwise, or not at all, is read
    as JSON where it is JSON. Python's constants are read where they are declared.
    """
    as_text = json.dumps(value, ensure_ascii=False)
    if is_string is not None:
        return as_text if is_string == "true" else _json_or(value, as_text)
    if "string" in types:
        return "null" if "null" in types and value.strip() in ("null", "None") else as_text
    if types & {"boolean", "null"} and value.strip() in _PYTHON_CONSTANTS:
        return _PYTHON_CONSTANTS[value.strip()]
    return _json_or(value, as_text)


def _json_or(value: str, fallback: str) -> str:
    try:
        parse_json(value)
    except ValueError:
        return fallback
    return value.strip()
