"""Cuts marked text into content, reasoning and tool calls, while it comes in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

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
    in_reasoning: bool = False
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
        markers = self._patterns.of(state, at_start=self._at_start)
        match = self._first(markers, 0, final)
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
        return [self._take(cast("PieceKind", kind), match.end())]

    def _step_in_call(self, final: bool) -> list[Piece] | None:
        syntax, opened = self._open_call
        match = self._first(self._patterns.end_of_call, self._searched, final)
        if match is None:
            if not final:
                self._searched = len(self._buffer)
                return None
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

    def _first(self, markers: _Markers, start: int, final: bool) -> regex.Match[str] | None:
        """The first marker, perhaps an incomplete one at the end of the buffer."""
        marker = markers.known.search(self._buffer, start, partial=not final)
        control = markers.control.search(self._buffer, start)
        # Searched apart: one regex would find the lone control token that begins a longer marker.
        if control is None or (marker is not None and marker.start() <= control.start()):
            return marker
        return control

    def _take(self, kind: PieceKind, length: int) -> Piece:
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        if kind == "call" or (kind == "content" and text.strip()):
            self._at_start = False
        return Piece(kind=kind, text=text, in_reasoning=self._state == "reasoning")


_MARKERS = frozenset({"call", "reasoning_open", "reasoning_close", "skip", "control"})


@dataclass(frozen=True, slots=True)
class _Markers:
    """What to look for in one state: markers with a meaning, and control tokens without."""

    known: regex.Pattern[str]
    control: regex.Pattern[str]


class _Patterns:
    """The markers of each state; each regex has a named group per kind of marker."""

    def __init__(self, grammar: Grammar) -> None:
        control = regex.compile(f"(?P<control>{grammar.control})")
        skip = [("skip", pattern) for pattern in grammar.skip]
        reasoning, calls = grammar.reasoning, grammar.calls
        opens = [("reasoning_open", reasoning.open)] if reasoning else []
        closes = [("reasoning_close", reasoning.close)] if reasoning else []
        call = [("call", calls.open)] if calls else []
        later = [] if calls and calls.only_at_start else call
        self._at_start = _Markers(_alternatives([*call, *opens, *skip]), control)
        self._content = _Markers(_alternatives([*later, *opens, *skip]), control)
        self._reasoning = _Markers(_alternatives(closes), control)
        inner = calls.inner if calls else "(?!)"
        self.end_of_call = _Markers(
            _alternatives([("close", calls.close)] if calls else []),
            regex.compile(f"(?P<control>(?!{inner}){grammar.control})"),
        )

    def of(self, state: Literal["content", "reasoning"], *, at_start: bool) -> _Markers:
        if state == "reasoning":
            return self._reasoning
        return self._at_start if at_start else self._content


def _alternatives(named: list[tuple[str, str]]) -> regex.Pattern[str]:
    # `regex` lets alternatives share a group name, which plain `re` doesn't.
    pattern = "|".join(f"(?P<{name}>{pattern})" for name, pattern in named)
    return regex.compile(pattern or "(?!)", regex.DOTALL)
