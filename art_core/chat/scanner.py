"""Cuts marked text into content, reasoning and tool calls, while it comes in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import regex

from art_core.chat.grammar import CallSyntax, Grammar

PieceKind = Literal[
    "content", "reasoning_open", "reasoning", "reasoning_close", "call", "skip", "control"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of marked text; the pieces of a text, joined, are the text."""

    kind: PieceKind
    text: str
    opening: Mapping[str, str] = field(default_factory=dict[str, str])
    """Calls: the named groups of what opened it."""
    body: str = ""
    """Calls: what stands between the markers."""
    closed: bool = True
    """Calls: False where the text ended first."""


class Scanner:
    """A state machine over one assistant turn: in content, in reasoning, or in a call.

    Text is passed on as soon as no marker can begin in it; calls come whole.
    """

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._patterns = _Patterns(grammar)
        self._state: Literal["content", "reasoning", "call"] = "content"
        if grammar.reasoning is not None and grammar.reasoning.opened_by_prompt:
            self._state = "reasoning"
        self._buffer = ""
        self._open_call: tuple[CallSyntax, regex.Match[str]]
        self._searched = 0  # how much of a call is known not to hold its end
        self._at_start = True

    def feed(self, text: str) -> Iterator[Piece]:
        """Take more text; yield what became certain."""
        self._buffer += text
        yield from self._scan(final=False)

    def finish(self) -> Iterator[Piece]:
        """Yield the rest."""
        yield from self._scan(final=True)

    def _scan(self, *, final: bool) -> Iterator[Piece]:
        while self._buffer:
            pieces = self._step_in_call(final) if self._state == "call" else self._step(final)
            if pieces is None:
                return
            yield from pieces

    def _step(self, final: bool) -> list[Piece] | None:
        """One step outside of calls; None when more text is needed."""
        state = "reasoning" if self._state == "reasoning" else "content"
        pattern = self._patterns.of(state, at_start=self._at_start)
        match = pattern.search(self._buffer, partial=not final)
        before = len(self._buffer) if match is None else match.start()
        pieces = [self._take(state, before)] if before else []
        if match is None or match.partial:
            # Text before a marker that isn't complete yet is certain; the rest waits.
            return pieces or None
        if before:  # look again: what comes first may only stand at the start
            return pieces
        kind = match.lastgroup
        if kind == "call" and self._grammar.calls is not None:
            self._state, self._searched = "call", match.end()
            self._open_call = (self._grammar.calls, match)
            return []
        if kind == "reasoning_open":
            self._state = "reasoning"
        elif kind == "reasoning_close":
            self._state = "content"
        return [self._take(_marker_kind(kind), match.end())]

    def _step_in_call(self, final: bool) -> list[Piece] | None:
        syntax, opened = self._open_call
        match = self._patterns.end_of_call.search(self._buffer, self._searched, partial=not final)
        if match is None:
            return [self._call(len(self._buffer), closed=syntax.ends_with_turn)]
        if match.partial:
            self._searched = match.start()
            return None
        if match.lastgroup == "control":
            return [self._call(match.start(), closed=syntax.ends_with_turn)]
        if not syntax.may_close(self._buffer[opened.end() : match.start()]):
            self._searched = match.end()
            return []
        return [self._call(match.start(), closed=True, end=match.end())]

    def _call(self, body_end: int, *, closed: bool, end: int | None = None) -> Piece:
        _, opened = self._open_call
        groups = {
            key: value
            for key, value in opened.groupdict().items()
            if key not in _MARKERS and isinstance(value, str)
        }
        body = self._buffer[opened.end() : body_end]
        taken = self._take("call", body_end if end is None else end)
        self._state = "content"
        return Piece(kind="call", text=taken.text, opening=groups, body=body, closed=closed)

    def _take(self, kind: PieceKind, length: int) -> Piece:
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        if kind == "call" or (kind == "content" and text.strip()):
            self._at_start = False
        return Piece(kind=kind, text=text)


_MARKERS: tuple[PieceKind, ...] = (
    "call",
    "reasoning_open",
    "reasoning_close",
    "skip",
    "control",
)


def _marker_kind(group: str | None) -> PieceKind:
    for kind in _MARKERS:
        if kind == group:
            return kind
    raise AssertionError(f"no marker named {group}")


class _Patterns:
    """What to look for in each state, as one regex with a named group per marker."""

    def __init__(self, grammar: Grammar) -> None:
        control = ("control", grammar.control)
        skip = [("skip", pattern) for pattern in grammar.skip]
        reasoning, calls = grammar.reasoning, grammar.calls
        opens = [("reasoning_open", reasoning.open)] if reasoning else []
        call = [("call", calls.open)] if calls else []
        later = [] if calls and calls.only_at_start else call
        self._at_start = _alternatives([*opens, *call, *skip, control])
        self._content = _alternatives([*opens, *later, *skip, control])
        closes = [("reasoning_close", reasoning.close)] if reasoning else []
        self._reasoning = _alternatives([*closes, control])
        ends = (
            [("close", calls.close), ("control", f"(?!{calls.inner}){grammar.control}")]
            if calls
            else []
        )
        self.end_of_call = _alternatives(ends)

    def of(self, state: Literal["content", "reasoning"], *, at_start: bool) -> regex.Pattern[str]:
        if state == "reasoning":
            return self._reasoning
        return self._at_start if at_start else self._content


def _alternatives(named: list[tuple[str, str]]) -> regex.Pattern[str]:
    # `regex` lets alternatives share a group name, which plain `re` doesn't.
    return regex.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in named))
