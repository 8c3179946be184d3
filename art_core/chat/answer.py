"""An answer that wasn't sampled, in the tokens that the model would have sampled to give it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from art_core.chat.grammar import Grammar
from art_core.chat.normalise import canonical_key
from art_core.chat.reading import outline
from art_core.chat.turns import Turn
from art_core.chat.vocabulary import Vocabulary
from art_core.errors import ChatError
from art_core.trajectories import Message

TextOf = Callable[[Sequence[Turn], bool], str]
"""Marked text of turns; with the opening of another answer if the flag is set."""


def written_answers(
    vocabulary: Vocabulary,
    grammar: Grammar,
    stop_token_ids: Sequence[int],
    text_of: TextOf,
    turns: Sequence[Turn],
) -> Iterator[str]:
    """The ways in which the template writes the last of ``turns`` behind its prompt, up to and
    with the token that ends it (marked text).

    Some templates end a turn only once another follows, so it is tried alone, before
    another answer, and with a reply.
    """
    prompt = text_of(turns[:-1], True)
    for conversation, generation in (
        (turns, False),
        (turns, True),
        ([*turns, *_replies(turns[-1])], True),
    ):
        try:
            whole = text_of(conversation, generation)
        except ChatError:
            continue
        if not whole.startswith(prompt):
            continue
        written = whole[len(prompt) :]
        at = outline(grammar, written).end
        end = next(vocabulary.controls(written, at), None)
        if end is not None and end[0] == at and end[2] in stop_token_ids:
            yield written[: end[1]]


def what_is_lost(wanted: Turn, message: Message, parsed: Message) -> str | None:
    """What of an answer isn't in it any more when it's read back; None: all is there.

    Blanks around texts don't count: templates drop them.
    """
    said, read = (_fields(each) for each in (message, parsed))
    if said[1] != read[1]:
        return "tool calls"
    if said[0] != read[0]:
        return "text"
    thought = parsed.get("reasoning_content")
    if wanted.reasoning.strip() != (thought.strip() if isinstance(thought, str) else ""):
        return "reasoning"
    return None


def _replies(answer: Turn) -> list[Turn]:
    if answer.calls:
        return [Turn(role="tool", text="ok", name=c.name, call_id=c.id) for c in answer.calls]
    return [Turn(role="user", text="ok")]


def _fields(message: Message) -> tuple[str, list[list[str]]]:
    """Text and calls of a message, without ids."""
    _, _, text, calls, _ = json.loads(canonical_key(message))
    return text.strip(), [call[1:] for call in calls]
