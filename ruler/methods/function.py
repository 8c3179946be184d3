"""A Python function as judge."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from art_core.errors import JudgeAnswerError, RewardError
from art_core.trajectories import Trajectory, check_reward
from ruler.answers import Judgement
from ruler.asking import Desk
from ruler.case import Case
from ruler.methods.judge import Verdict

ScoreFunction = Callable[[Sequence[Trajectory]], Sequence[Any] | Awaitable[Sequence[Any]]]
"""A group's trajectories in, as many scores in [0, 1] out, in the same order; may be async."""


@dataclass(frozen=True, slots=True)
class FunctionJudge:
    """Scores a group by a function. What the function raises is a bug, and comes through."""

    function: ScoreFunction

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))

    async def judge(self, case: Case, desk: Desk) -> Verdict:
        returned = self.function(case.trajectories)
        scores = await returned if inspect.isawaitable(returned) else returned
        if len(scores) != len(case.trajectories):
            raise JudgeAnswerError(
                f"{self.name} returned {len(scores)} scores for {len(case.trajectories)} "
                "trajectories",
                "It must return one for each, in their order.",
            )
        return Verdict(judgements=tuple(Judgement(score=self._check(score)) for score in scores))

    def _check(self, value: Any) -> float:
        try:
            score = check_reward(value)
        except RewardError as error:
            raise JudgeAnswerError(f"{self.name} returned {value!r:.100}", error.remedy) from error
        if not 0 <= score <= 1:
            raise JudgeAnswerError(f"{self.name} returned {score}", "Scores must be in [0, 1].")
        return score
