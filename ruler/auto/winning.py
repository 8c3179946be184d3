"""Before against after: who wins on the same held-out scenarios."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from art_core.errors import JudgeError
from art_core.rollouts.scenarios import scenario_digest
from art_core.runs import VALIDATION_SPLIT, RunDirectory
from art_core.trajectories import Trajectory, TrajectoryGroup
from ruler.methods.judge import stops_the_run
from ruler.scorer import Ruler
from ruler.together import all_of


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRate:
    """The outcome of pairs."""

    wins: int
    ties: int
    losses: int
    unjudged: int = 0
    """Pairs without an answer of the judge, or with a failed rollout; they count for nothing."""

    @property
    def rate(self) -> float | None:
        """Share of pairs won, a tie being half; None: no pair was judged."""
        judged = self.wins + self.ties + self.losses
        return (self.wins + self.ties / 2) / judged if judged else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % score interval (Wilson 1927)."""
        rate, count, z = self.rate, self.wins + self.ties + self.losses, 1.96
        if rate is None:
            return None
        centre = (rate + z * z / (2 * count)) / (1 + z * z / count)
        half = z * math.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
        half /= 1 + z * z / count
        return max(0.0, centre - half), min(1.0, centre + half)

    def __str__(self) -> str:
        if self.rate is None or self.interval is None:
            return "no pair could be judged"
        low, high = self.interval
        return (
            f"{self.rate:.0%} ({low:.0%} to {high:.0%}; {self.wins} won, {self.ties} tied, "
            f"{self.losses} lost, {self.unjudged} unjudged)"
        )


Pair = tuple[Trajectory | None, Trajectory | None]
"""Before and after; None: that rollout failed."""


def before_and_after(run: RunDirectory, step: int) -> list[Pair]:
    """The held-out rollouts of the untrained model and of the one at ``step``, scenario by
    scenario."""
    before, after = (
        {
            scenario_digest(group.metadata["scenario"]): group.trajectories
            for group in run.trajectories.read(VALIDATION_SPLIT, at)
        }
        for at in (0, step)
    )
    return [
        pair
        for scenario in sorted(before.keys() | after.keys())
        for pair in zip_longest(before.get(scenario, []), after.get(scenario, []))
    ]


async def win_rate(pairs: Iterable[Pair], ruler: Ruler) -> WinRate:
    """How often the second of a pair beats the first.

    ``ruler`` should ask pairwise: each pair in both orders, and a win is one in both.
    Pairs that read alike are ties, and aren't asked about.
    """
    margins = await all_of(_margin(before, after, ruler) for before, after in pairs)
    judged = [margin for margin in margins if margin is not None]
    return WinRate(
        wins=sum(margin > 0 for margin in judged),
        ties=sum(margin == 0 for margin in judged),
        losses=sum(margin < 0 for margin in judged),
        unjudged=len(margins) - len(judged),
    )


async def _margin(
    before: Trajectory | None, after: Trajectory | None, ruler: Ruler
) -> float | None:
    case = ruler.case(TrajectoryGroup(one for one in (before, after) if one is not None))
    if len(case.trajectories) < 2:
        return None
    try:
        verdict = await ruler.verdict(case)
    except JudgeError as error:
        if stops_the_run(error):
            raise
        return None
    first, second = (judgement.score for judgement in verdict.judgements)
    return second - first
