"""Training and validation scenarios that don't give each other away."""

from __future__ import annotations

import random
from collections.abc import Sequence

from art_core.errors import ConfigError, ScenarioError
from ruler.auto.likeness import RELATED, clusters
from ruler.auto.scenario import Scenario


def split_scenarios(
    scenarios: Sequence[Scenario], *, validation: float = 0.2, seed: int = 0
) -> tuple[list[Scenario], list[Scenario]]:
    """Split into training and validation, difficulties evenly.

    Related tasks (`ruler.auto.likeness.RELATED`) stay on one side, so that what is
    held out can't be learned by heart from what is trained on.

    Raises:
        ConfigError: ``validation`` isn't a share between 0 and 1.
        ScenarioError: there are too few scenarios, or all are related.
    """
    if not 0 < validation < 1:
        raise ConfigError(f"validation is {validation}", "Give a share between 0 and 1.")
    groups = clusters([one.task for one in scenarios], RELATED)
    wanted = max(1, round(validation * len(scenarios)))
    held_out: set[int] = set()
    for group in _by_difficulty(groups, scenarios, seed):
        if len(held_out) + len(group) <= wanted:
            held_out |= set(group)
    if not held_out or len(held_out) == len(scenarios):
        raise ScenarioError(
            f"{len(scenarios)} scenarios in {len(groups)} related groups can't be split",
            "Make more of them, or more different ones.",
        )
    return (
        [one for index, one in enumerate(scenarios) if index not in held_out],
        [one for index, one in enumerate(scenarios) if index in held_out],
    )


def _by_difficulty(
    groups: Sequence[Sequence[int]], scenarios: Sequence[Scenario], seed: int
) -> list[Sequence[int]]:
    """The groups in random order, difficulties taking turns."""
    generator = random.Random(seed)
    shuffled = generator.sample(groups, len(groups))
    seen: dict[int, int] = {}

    def turn(group: Sequence[int]) -> int:
        difficulty = scenarios[group[0]].difficulty
        seen[difficulty] = seen.get(difficulty, -1) + 1
        return seen[difficulty]

    return sorted(shuffled, key=turn)
