"""Continues recorded tokens: only what is new is rendered, behind the ids that were sampled."""

from __future__ import annotations

from collections.abc import Sequence, Set

from art_core.chat.grammar import Grammar
from art_core.chat.reading import outline
from art_core.chat.vocabulary import Vocabulary


def continuation(
    vocabulary: Vocabulary,
    grammar: Grammar,
    stop_token_ids: Set[int],
    *,
    sampled: Sequence[int],
    said: str,
    written: str,
) -> list[int] | None:
    """Token ids to append to ``sampled`` so that the conversation goes on.

    ``said`` is the answer's text; ``written`` is marked text: what the template
    writes behind the same prompt, the assistant turn (as it spells it) and all
    that follows. None where that isn't a continuation of what was sampled: the
    template left the reasoning out, or added an empty one, or ends the turn with
    another token.
    """
    ended = bool(sampled) and sampled[-1] in stop_token_ids
    answer = vocabulary.decode(sampled[:-1] if ended else sampled)
    ours = outline(grammar, answer, through_strays=True)
    theirs = outline(grammar, written)
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
    blanks = said[len(said.rstrip()) :]
    closing = written[theirs.closing : theirs.end].removeprefix(blanks)
    closing = _missing(answer[ours.closing :], closing)
    if closing is None:
        return None
    return vocabulary.encode_after(
        sampled[-1] if sampled else None, closing + written[theirs.end :]
    )


def _missing(have: str, want: str) -> str | None:
    """What of the closing markers ``want`` isn't sampled yet; None where other ones were."""
    if want.startswith(have):
        return want[len(have) :]
    if not have.strip():
        return want
    return "" if want.strip() == have.strip() else None
