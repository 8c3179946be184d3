"""Tool calls in Gemma 4's notation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import regex

from art_core.chat.grammar import CallSyntaxError, ToolTypes
from art_core.chat.turns import Call, parse_json


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmaCalls:
    """``call:look_up{city:<|"|>Paris<|"|>,days:3}``: bare keys, strings between control tokens."""

    name: str
    open: str
    close: str
    quote: str
    """The control token around strings, in marked text."""
    inner: str
    ends_with_turn: bool = False
    only_at_start: bool = False
    pythonic: bool = False

    def may_close(self, body: str) -> bool:
        return True

    def decode(self, opening: Mapping[str, str], body: str, types: ToolTypes) -> list[Call]:
        match = regex.fullmatch(
            r"\s*call:(?P<name>[^\s{]+)\s*(?P<arguments>\{.*\})\s*", body, regex.DOTALL
        )
        if match is None:
            raise CallSyntaxError("not call:name{…}", body)
        reader = _GemmaReader(match["arguments"], self.quote)
        arguments = reader.value(0)
        if reader.at != len(reader.text):
            raise CallSyntaxError("more behind the arguments", reader.rest())
        return [Call(name=match["name"], arguments=arguments)]


class _GemmaReader:
    """Reads a value as JSON text."""

    def __init__(self, text: str, quote: str) -> None:
        self.text = text
        self.at = 0
        self._quote = quote

    def rest(self) -> str:
        return self.text[self.at :]

    def value(self, depth: int) -> str:
        if depth > 100:
            raise CallSyntaxError("nested too deeply")
        if self._take("{"):
            return f"{{{', '.join(self._items('}', lambda: self._pair(depth)))}}}"
        if self._take("["):
            return f"[{', '.join(self._items(']', lambda: self.value(depth + 1)))}]"
        if self._take(self._quote):
            return json.dumps(self._until(self._quote), ensure_ascii=False)
        return self._bare()

    def _pair(self, depth: int) -> str:
        quoted = self._take(self._quote)
        key = self._until(self._quote) if quoted else self._until(":").strip()
        if quoted and not self._take(":"):
            raise CallSyntaxError("expected ':'", self.rest())
        return f"{json.dumps(key, ensure_ascii=False)}: {self.value(depth + 1)}"

    def _items(self, close: str, item: Callable[[], str]) -> list[str]:
        items: list[str] = []
        while not self._take(close):
            if items and not self._take(","):
                raise CallSyntaxError(f"expected ',' or {close!r}", self.rest())
            items.append(item())
        return items

    def _bare(self) -> str:
        match = regex.compile(r"\s*([^,\]}\s]+)\s*").match(self.text, self.at)
        if match is None:
            raise CallSyntaxError("expected a value", self.rest())
        word = "null" if match[1] == "None" else match[1]  # early templates write Python's None
        try:
            parse_json(word)
        except ValueError as error:
            raise CallSyntaxError("not a value", word) from error
        self.at = match.end()
        return word

    def _take(self, literal: str) -> bool:
        at = self.at
        while at < len(self.text) and self.text[at].isspace():
            at += 1
        if not self.text.startswith(literal, at):
            return False
        self.at = at + len(literal)
        return True

    def _until(self, literal: str) -> str:
        end = self.text.find(literal, self.at)
        if end < 0:
            raise CallSyntaxError("it breaks off", self.rest())
        found, self.at = self.text[self.at : end], end + len(literal)
        return found
