"""Several judges on one group, and how far they agree."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from art_core.errors import ConfigError
from ruler.answers import Judgement
from ruler.asking import Desk
from ruler.case import Case
from ruler.methods.judge import Judge, Verdict, stops_the_run
from ruler.statistics import krippendorff_alpha, mean_kendall_tau

Aggregate = Literal["mean", "vote"]
"""``mean`` of the scores; or ``vote``: for each pair of trajectories a majority of judges
decides which is better, and the score is the share of the others that one beats (ties half)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Judges who don't hear each other. The same judge may sit twice: each sees its own order."""

    judges: Sequence[Judge]
    aggregate: Aggregate = "mean"
    quorum: int | None = None
    """How many must give usable scores; None: all. Below it the group is unscored."""

    def __post_init__(self) -> None:
        if not self.judges:
            raise ConfigError("the panel has no judges", "Give at least one.")
        if self.quorum is not None and not 1 <= self.quorum <= len(self.judges):
            raise ConfigError(
                f"quorum is {self.quorum} of {len(self.judges)} judges",
                "It must be between 1 and the number of judges.",
            )

    @property
    def name(self) -> str:
        return " + ".join(judge.name for judge in self.judges)

    async def judge(self, case: Case, desk: Desk) -> Verdict:
        outcomes = await asyncio.gather(
            *(
                judge.judge(self._seat(case, number), desk)
                for number, judge in enumerate(self.judges)
            ),
            return_exceptions=True,
        )
        verdicts = [outcome for outcome in outcomes if isinstance(outcome, Verdict)]
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for error in errors:
            if stops_the_run(error):
                raise error
        if len(verdicts) < (self.quorum or len(self.judges)):
            raise errors[0]
        return self._combine(verdicts, len(case.trajectories))

    def _seat(self, case: Case, number: int) -> Case:
        return replace(
            case,
            seed=case.seed + 7919 * number,
            sample=case.sample * len(self.judges) + number,
        )

    def _combine(self, verdicts: Sequence[Verdict], count: int) -> Verdict:
        ratings = [[one.score for one in verdict.judgements] for verdict in verdicts]
        scores = (
            _majority(ratings)
            if self.aggregate == "vote"
            else [fmean(column) for column in zip(*ratings, strict=True)]
        )
        said = zip(*(verdict.judgements for verdict in verdicts), strict=True)
        explanations = [" | ".join(one.explanation for one in column) for column in said]
        metrics = {"ruler/judges": float(len(verdicts))}
        if (alpha := krippendorff_alpha(ratings)) is not None:
            metrics["ruler/agreement_alpha"] = alpha
        if (tau := mean_kendall_tau(ratings)) is not None:
            metrics["ruler/agreement_tau"] = tau
        return Verdict(
            judgements=tuple(
                Judgement(score=scores[index], explanation=explanations[index])
                for index in range(count)
            ),
            metrics=metrics,
        )


def _majority(ratings: Sequence[Sequence[float]]) -> list[float]:
    count = len(ratings[0])
    if count == 1:
        return [0.5]

    def beats(one: int, other: int) -> float:
        votes = sum((row[one] > row[other]) - (row[one] < row[other]) for row in ratings)
        return ((votes > 0) - (votes < 0) + 1) / 2

    return [
        sum(beats(one, other) for other in range(count) if other != one) / (count - 1)
        for one in range(count)
    ]
