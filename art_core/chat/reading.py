"""Reads what stands in marked text: a turn's outline, the calls in a conversation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from art_core.chat.grammar import CallSyntaxError, Grammar, ToolTypes
from art_core.chat.scanner import Piece, Scanner
from art_core.chat.turns import Call


@dataclass(frozen=True, slots=True)
class Outline:
    """What parts an assistant turn has, and where it ends in a text."""

    reasoning: bool
    """Whether it has a reasoning block, even an empty one."""
    calls: int
    end: int
    """Offset of the first control token that isn't part of the turn; else the text's length."""
    closing: int
    """Offset behind the last text of the last part: from here to `end` stand closing markers."""


def outline(grammar: Grammar, marked: str, *, through_strays: bool = False) -> Outline:
    """Read an assistant turn at the beginning of ``marked``.

    It ends at the first control token that isn't part of a turn; in sampled
    text, which may hold any, look ``through_strays``.
    """
    at = closing = calls = 0
    reasoning = grammar.reasoning is not None and grammar.reasoning.opened_by_prompt
    for piece in _pieces(grammar, marked):
        if piece.kind == "control" and not through_strays:
            break
        at += len(piece.text)
        if piece.kind == "call":
            calls += len(_calls(grammar, piece))
        if piece.kind in ("call", "control"):
            closing = at
        elif piece.kind in ("content", "reasoning") and piece.text.strip():
            closing = at - len(piece.text) + len(piece.text.rstrip())
        elif piece.kind == "reasoning_open":
            reasoning = True
    return Outline(reasoning, calls, at, closing)


def calls_in(grammar: Grammar, marked: str) -> list[Call]:
    """The well-formed calls in a conversation's text, in order."""
    grammar = within(grammar)
    pieces = [piece for piece in _pieces(grammar, marked) if piece.kind == "call"]
    return [call for piece in pieces for call in _calls(grammar, piece)]


def within(grammar: Grammar) -> Grammar:
    """The grammar for text that doesn't begin where an assistant's turn does."""
    reasoning = grammar.reasoning and replace(grammar.reasoning, opened_by_prompt=False)
    calls = None if grammar.calls is None or grammar.calls.only_at_start else grammar.calls
    return replace(grammar, reasoning=reasoning, calls=calls)


def _pieces(grammar: Grammar, marked: str) -> Iterator[Piece]:
    scanner = Scanner(grammar)
    yield from scanner.feed(marked)
    yield from scanner.finish()


def _calls(grammar: Grammar, piece: Piece) -> list[Call]:
    if grammar.calls is None or not piece.closed:
        return []
    try:
        return grammar.calls.decode(piece.opening, piece.body, ToolTypes(()))
    except CallSyntaxError:
        return []
