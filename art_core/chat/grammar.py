"""How one model writes an assistant turn: reasoning, content and tool calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from art_core.chat.turns import Call
from art_core.trajectories import Tool


class CallSyntaxError(ValueError):
    """A tool call that can't be read: what is wrong, and with which part of its marked text."""

    def __init__(self, problem: str, text: str = "") -> None:
        super().__init__(problem, text)
        self.problem = problem
        self.text = text


class ToolTypes:
    """The JSON types that tools declare for their parameters."""

    def __init__(self, tools: Sequence[Tool] | None) -> None:
        self._types: dict[str, dict[str, frozenset[str]]] = {}
        for tool in tools or ():
            function = _object(tool.get("function") or tool)
            properties = _object(_object(function.get("parameters")).get("properties"))
            self._types[str(function.get("name"))] = {
                key: frozenset(_declared_types(value)) for key, value in properties.items()
            }

    def of(self, function: str, parameter: str) -> frozenset[str]:
        """Declared types; empty where nothing is declared."""
        return self._types.get(function, {}).get(parameter, frozenset())


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _declared_types(schema: object) -> list[str]:
    fields = _object(schema)
    declared = fields.get("type")
    types = cast("list[Any]", declared) if isinstance(declared, list) else [declared]
    choices = [choice for union in ("anyOf", "oneOf") for choice in fields.get(union) or ()]
    names = [kind for kind in types if isinstance(kind, str)]
    return names + [kind for choice in choices for kind in _declared_types(choice)]


class CallSyntax(Protocol):
    """One way of writing tool calls. Regexes are over marked text."""

    @property
    def name(self) -> str: ...

    @property
    def open(self) -> str:
        """Regex of what begins a call (or a list of calls)."""
        ...

    @property
    def close(self) -> str:
        """Regex of what ends it."""
        ...

    @property
    def inner(self) -> str:
        """Regex of the control tokens that may stand inside; any other breaks the call off."""
        ...

    @property
    def ends_with_turn(self) -> bool:
        """Whether the end of the turn, or another control token, ends it too."""
        ...

    @property
    def only_at_start(self) -> bool:
        """Whether it must be the first thing in the content."""
        ...

    @property
    def pythonic(self) -> bool:
        """Whether Python's True, False and None are its own spelling."""
        ...

    def may_close(self, body: str) -> bool:
        """Whether a match of `close` behind ``body`` is meant (not inside a string, say)."""
        ...

    def decode(self, opening: Mapping[str, str], body: str, types: ToolTypes) -> list[Call]:
        """The calls. ``opening`` has the named groups of `open`.

        Raises:
            CallSyntaxError: malformed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """The markers around reasoning, as regexes over marked text."""

    open: str
    close: str
    opened_by_prompt: bool = False
    """The generation prompt already holds the opening marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """What the scanner looks for in sampled text."""

    control: str
    """Regex of any one control token."""
    reasoning: Reasoning | None = None
    calls: CallSyntax | None = None
    skip: Sequence[str] = field(default_factory=tuple[str, ...])
    """Regexes of control sequences that mean nothing by themselves (channel headers)."""
