"""Continues recorded tokens: only what is new is rendered, behind the ids that were sampled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from art_core.chat.grammar import CallSyntaxError, Grammar, ToolTypes
from art_core.chat.scanner import Piece, Scanner
from art_core.chat.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Outline:
    """What parts an assistant turn has, and where it ends in a text."""

    reasoning: bool
    """Whether it has a reasoning block, even an empty one."""
    calls: int
    unfinished: bool
    """Whether it breaks off inside the reasoning."""
    end: int
    """Offset of the first control token that isn't part of the turn; else the text's length."""
    closing: int
    """Offset behind the last text of the last part: from here to `end` stand closing markers."""


def outline(
    grammar: Grammar, types: ToolTypes, marked: str, *, through_strays: bool = False
) -> Outline:
    """Read an assistant turn at the beginning of ``marked``.

    It ends at the first control token that isn't part of a turn; in sampled
    text, which may hold any, look ``through_strays``.
    """
    scanner = Scanner(grammar)
    at = closing = calls = 0
    prompted = grammar.reasoning is not None and grammar.reasoning.opened_by_prompt
    reasoning = unfinished = prompted
    for piece in _read(scanner, marked):
        if piece.kind == "control" and not through_strays:
            break
        at += len(piece.text)
        if piece.kind in ("content", "reasoning") and piece.text.strip():
            closing = at - len(piece.text) + len(piece.text.rstrip())
        elif piece.kind == "call":
            calls += _count(grammar, types, piece)
            closing = at
        elif piece.kind == "reasoning_open":
            reasoning = unfinished = True
        elif piece.kind == "reasoning_close":
            unfinished = False
    return Outline(reasoning, calls, unfinished, at, closing)


def _read(scanner: Scanner, marked: str) -> Iterator[Piece]:
    yield from scanner.feed(marked)
    yield from scanner.finish()


def _count(grammar: Grammar, types: ToolTypes, piece: Piece) -> int:
    if grammar.calls is None or not piece.closed:
        return 0
    try:
        return len(grammar.calls.decode(piece.opening, piece.body, types))
    except CallSyntaxError:
        return 0


def continuation(
    vocabulary: Vocabulary,
    grammar: Grammar,
    types: ToolTypes,
    stop_token_ids: Set[int],
    *,
    sampled: Sequence[int],
    written: str,
) -> list[int] | None:
    """Token ids to append to ``sampled`` so that the conversation goes on.

    ``written`` is marked text: what the template writes behind the same prompt,
    the assistant turn (as it spells it) and all that follows. None where that
    isn't a continuation of what was sampled: the template left the reasoning
    out, or added an empty one, or ends the turn with another token.
    """
    ended = bool(sampled) and sampled[-1] in stop_token_ids
    answer = vocabulary.decode(sampled[:-1] if ended else sampled)
    ours = outline(grammar, types, answer, through_strays=True)
    theirs = outline(grammar, types, written)
    if (ours.reasoning, ours.calls) != (theirs.reasoning, theirs.calls):
        return None
    end_of_turn = next(vocabulary.controls(written, theirs.end), None)
    if end_of_turn is None or end_of_turn[0] != theirs.end:
        return None
    _, behind, end_token_id = end_of_turn
    if ended:
        if sampled[-1] != end_token_id:
            return None
        return vocabulary.encode_after(end_token_id, written[behind:])
    # Broken off by a limit or a stop string: what closes the turn comes as observed tokens.
    closing = written[theirs.closing : theirs.end] if ours.unfinished else ""
    return vocabulary.encode_after(
        sampled[-1] if sampled else None, closing + written[theirs.end :]
    )
