"""Tasks that say nearly the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from art_core.errors import MissingExtraError

NEARLY_THE_SAME = 85.0
"""Of 100: two such tasks are one, with a word or two exchanged."""
RELATED = 75.0
"""Of 100: one such task gives away much of the other."""


def likeness(one: str, other: str) -> float:
    """How alike two texts are, from 0 to 100: rapidfuzz's ``token_sort_ratio``, so the
    order of words, case and punctuation don't count."""
    fuzz, utils = _rapidfuzz()
    return float(fuzz.token_sort_ratio(one, other, processor=utils.default_process))


def closest(text: str, others: Sequence[str]) -> float:
    """The likeness to the most alike of ``others``; 0 where there are none."""
    return max((likeness(text, other) for other in others), default=0.0)


def clusters(texts: Sequence[str], least: float = RELATED) -> list[list[int]]:
    """Indices of texts, grouped so that all that are at least so alike are in one group."""
    group = list(range(len(texts)))

    def root(index: int) -> int:
        while group[index] != index:
            group[index] = group[group[index]]
            index = group[index]
        return index

    for later in range(len(texts)):
        for earlier in range(later):
            if root(later) != root(earlier) and likeness(texts[later], texts[earlier]) >= least:
                group[root(later)] = root(earlier)
    members: dict[int, list[int]] = {}
    for index in range(len(texts)):
        members.setdefault(root(index), []).append(index)
    return list(members.values())


def _rapidfuzz() -> tuple[Any, Any]:
    try:
        from rapidfuzz import fuzz, utils
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "making scenarios needs rapidfuzz, which isn't installed",
            "pip install 'art-core[ruler]'.",
        ) from error
    return fuzz, utils
