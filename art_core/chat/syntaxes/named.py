"""Tool calls written as a name and a JSON object, each behind a marker of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import regex

from art_core.chat.grammar import CallSyntaxError, ToolTypes
from art_core.chat.syntaxes.json_calls import checked_arguments, inside_string
from art_core.chat.turns import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedJsonCalls:
    """A block of ``name … {arguments}`` (DeepSeek, Kimi, Mistral), or one with the name in front
    of it (gpt-oss)."""

    name: str
    open: str
    """Where it has a group ``name``, the body is the arguments alone."""
    close: str = "(?!)"
    call: str = r"(?P<arguments>.*)"
    """One call of the body: groups ``name``, ``arguments`` and perhaps ``id``."""
    inner: str = "(?!)"
    ends_with_turn: bool = False
    only_at_start: bool = False
    pythonic: bool = False

    def may_close(self, body: str) -> bool:
        return True

    def decode(self, opening: Mapping[str, str], body: str, types: ToolTypes) -> list[Call]:
        pattern = regex.compile(rf"\s*{self.call}\s*", regex.DOTALL)
        calls: list[Call] = []
        at = 0
        while at < len(body.rstrip()) or not calls:
            match = pattern.match(body, at)
            if match is None or match.end() == at:
                raise CallSyntaxError("not a call", body[at:])
            groups = {**opening, **{k: v for k, v in match.groupdict().items() if v is not None}}
            calls.append(_call(groups))
            at = match.end()
        return calls


def _call(groups: Mapping[str, str]) -> Call:
    name = groups.get("name", "").strip()
    if not name:
        raise CallSyntaxError("no function name")
    arguments = groups["arguments"].strip() or "{}"
    if inside_string(arguments):
        raise CallSyntaxError("the arguments break off", arguments)
    return Call(name=name, arguments=checked_arguments(arguments), id=groups.get("id"))
