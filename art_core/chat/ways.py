"""The ways of putting a conversation, for templates that can't express it as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

from art_core.chat.turns import Call, Turn
from art_core.chat.writer import nine_characters

Way = Callable[[Sequence[Turn]], list[Turn]]


def _as_is(turns: Sequence[Turn]) -> list[Turn]:
    return list(turns)


def _one_system_message(turns: Sequence[Turn]) -> list[Turn]:
    """Leading system and developer messages joined into one."""
    system, rest = _leading_system(turns)
    if not system:
        return list(rest)
    return [replace(system[0], text="\n\n".join(turn.text for turn in system)), *rest]


def _system_in_user(turns: Sequence[Turn]) -> list[Turn]:
    """For templates without a system role: its text in front of the first user message's."""
    system, rest = _leading_system(turns)
    if not system or not rest or rest[0].role != "user":
        return list(turns)
    texts = [turn.text for turn in [*system, rest[0]] if turn.text]
    return [replace(rest[0], text="\n\n".join(texts)), *rest[1:]]


def _leading_system(turns: Sequence[Turn]) -> tuple[list[Turn], list[Turn]]:
    count = next(
        (at for at, turn in enumerate(turns) if turn.role not in ("system", "developer")),
        len(turns),
    )
    return list(turns[:count]), list(turns[count:])


def _without_reasoning(turns: Sequence[Turn]) -> list[Turn]:
    """Reasoning of earlier turns may go: many templates leave it out themselves."""
    return [replace(turn, reasoning="") for turn in turns]


def _mistral_ids(turns: Sequence[Turn]) -> list[Turn]:
    return _with_ids(turns, lambda id_, name, count: nine_characters(id_ or f"{name}:{count}"))


def _kimi_ids(turns: Sequence[Turn]) -> list[Turn]:
    """Kimi's template writes nothing of a call's name but what its id holds."""
    return _with_ids(turns, lambda id_, name, count: f"functions.{name}:{count}")


def _text_apart(turns: Sequence[Turn]) -> list[Turn]:
    """What an assistant says beside its calls as a turn of its own, before them."""
    made: list[Turn] = []
    for turn in turns:
        if turn.calls and turn.text:
            made += [replace(turn, calls=()), replace(turn, text="", reasoning="")]
        else:
            made.append(turn)
    return made


def _with_ids(turns: Sequence[Turn], make: Callable[[str, str, int], str]) -> list[Turn]:
    ids: dict[str | None, str] = {}
    made: list[Turn] = []
    for turn in turns:
        calls: list[Call] = []
        for call in turn.calls:
            ids[call.id] = make(call.id or "", call.name, len(ids))
            calls.append(replace(call, id=ids[call.id]))
        call_id = ids.get(turn.call_id, turn.call_id)
        made.append(replace(turn, calls=tuple(calls), call_id=call_id))
    return made


def _in_turn(steps: tuple[Way, ...]) -> Way:
    def way(turns: Sequence[Turn]) -> list[Turn]:
        for step in steps:
            turns = step(turns)
        return list(turns)

    return way


WAYS: tuple[Way, ...] = tuple(
    _in_turn(steps)
    for steps in product(
        (_as_is, _text_apart),
        (_as_is, _mistral_ids, _kimi_ids),
        (_as_is, _without_reasoning),
        (_as_is, _one_system_message, _system_in_user),
    )
)
"""In the order in which they are tried: as it is first, then with ever more changes."""
