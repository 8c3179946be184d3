"""Which scenarios a step plays: the same for the same seed, wherever the run was stopped."""

from __future__ import annotations

from art_core.rollouts.helpers import shuffled
from art_core.rollouts.play import derive_seed


def planned_scenarios(count: int, groups: int, seed: int, step: int) -> list[int]:
    """The indices of the scenarios of a step (from 1): each comes once before any comes again."""
    first = (step - 1) * groups
    return [
        shuffled(count, seed, position // count)[position % count]
        for position in range(first, first + groups)
    ]


def extra_scenarios(count: int, planned: list[int], extra: int, seed: int, step: int) -> list[int]:
    """The scenarios of groups that replace ones without spread: those not in the step first."""
    order = shuffled(count, derive_seed(seed, "extra", step), 0)
    fresh = [index for index in order if index not in planned]
    pool = fresh + [index for index in order if index in planned]
    return [pool[position % count] for position in range(extra)]
