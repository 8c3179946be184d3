"""`Ruler`: a group in, the same group with rewards out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path

from art_core.errors import ConfigError, JudgeError
from art_core.trajectories import TrajectoryGroup, TrajectoryStatus
from ruler.asking import Desk, Patience
from ruler.cache import answer_cache
from ruler.case import Case
from ruler.methods.judge import Judge, Verdict, stops_the_run
from ruler.resolving import JudgeSpec, Mode, Rubric, make_judge
from ruler.rewarding import Combine, is_unscored, with_rewards, without_rewards
from ruler.rubric import DEFAULT_RUBRIC
from ruler.tally import Budget, Tally

_log = logging.getLogger("ruler")


class Ruler:
    """Scores groups by a judge. ``art.train(…, reward=Ruler("openai/gpt-4.1"))``.

    Args:
        judge: A LiteLLM model string, an `OpenAIServer`, a function from trajectories
            to scores, a `Relative`, `Pairwise`, `Absolute` or `Panel`; or several of
            these, whose scores are averaged.
        rubric: What good means, as text, as a function of a group's trajectories, or
            (``mode="absolute"``) as criteria with weights.
        mode: How a judge model is asked: all trajectories of a group in one question,
            two at a time, or each alone.
        fallback: A judge for groups that ``judge`` failed on. Without one they stay
            unscored.
        combine: Makes the reward from score and trajectory; see `weighted`. Without
            one the score is the reward.
        seed: Of the order in which trajectories are shown.
        cache: The SQLite file in which accepted answers are kept, so that none is paid
            for twice. True: one in art_core's cache folder; False: none.
        patience: Retries, waits, repairs and time limit.
        budget: The most that judging may cost.
        concurrency: Calls under way at once, over all groups.
        max_failures: After so many groups in a row without a usable score `score`
            raises instead of leaving another one unscored.
    """

    def __init__(
        self,
        judge: JudgeSpec | Sequence[JudgeSpec],
        rubric: Rubric = DEFAULT_RUBRIC,
        *,
        mode: Mode = "relative",
        fallback: JudgeSpec | None = None,
        combine: Combine | None = None,
        seed: int = 0,
        cache: Path | bool = True,
        patience: Patience | None = None,
        budget: Budget | None = None,
        concurrency: int = 8,
        max_failures: int = 5,
    ) -> None:
        if max_failures < 1:
            raise ConfigError(f"max_failures is {max_failures}", "It must be at least 1.")
        self.judge: Judge = make_judge(judge, rubric, mode)
        self.fallback = None if fallback is None else make_judge(fallback, rubric, mode)
        self._combine = combine
        self._seed = seed
        self._max_failures = max_failures
        self._failures_in_a_row = 0
        self._unscored = 0
        self._desk = Desk(
            cache=answer_cache(cache),
            patience=patience,
            budget=budget,
            concurrency=concurrency,
        )

    def using(
        self,
        judge: JudgeSpec | Sequence[JudgeSpec],
        rubric: Rubric = DEFAULT_RUBRIC,
        *,
        mode: Mode = "relative",
    ) -> Ruler:
        """A ruler with another judge, and this one's settings, cache, budget and counts of cost."""
        other = copy(self)
        other.judge = make_judge(judge, rubric, mode)
        return other

    @property
    def unscored(self) -> int:
        """How many groups the judge failed on so far."""
        return self._unscored

    @property
    def spent(self) -> Tally:
        """What all groups so far have cost."""
        return self._desk.spent

    async def __call__(self, group: TrajectoryGroup) -> TrajectoryGroup | None:
        """`score`, for ``art.train(reward=…)``: None leaves an unscored group out of training."""
        scored = await self.score(group)
        return None if is_unscored(scored) else scored

    async def score(self, group: TrajectoryGroup) -> TrajectoryGroup:
        """The group with rewards, or, where the judge failed, without any.

        All else in it is kept. Each judged trajectory gets ``metrics["ruler_score"]``
        and ``metadata["ruler_explanation"]``, and what its reward was before in
        ``metrics["independent_reward"]``; failed rollouts are left as they are. The
        group's ``metrics`` say what judging cost, and ``ruler/scored`` whether it worked.

        Raises:
            JudgeSetupError: the judge can't work as it is set up.
            BudgetSpentError: the budget is spent.
            JudgeError: ``max_failures`` groups in a row couldn't be scored.
            RewardError: ``combine`` has no reward to combine with, or returns none.
        """
        case = self.case(group)
        if not case.trajectories:
            return group
        try:
            verdict = await self.verdict(case)
        except JudgeError as error:
            if stops_the_run(error):
                raise
            self._count_failure(error)
            _log.warning("group %s is left unscored: %s", group.id, error)
            return without_rewards(group, case, error)
        self._failures_in_a_row = 0
        return with_rewards(group, case, verdict, self._combine)

    def case(self, group: TrajectoryGroup, *, seed: int = 0, sample: int = 0) -> Case:
        """What of a group is judged: all but its failed rollouts."""
        judged = [t for t in group.trajectories if t.status is not TrajectoryStatus.FAILED]
        return Case.of(judged, seed=self._seed + seed, sample=sample)

    async def verdict(self, case: Case) -> Verdict:
        """What the judge, or after it the fallback, says.

        Raises:
            JudgeError: neither gave usable scores.
        """
        try:
            return await self.judge.judge(case, self._desk)
        except JudgeError as error:
            if self.fallback is None or stops_the_run(error):
                raise
            _log.warning("the fallback %s takes over: %s", self.fallback.name, error)
        verdict = await self.fallback.judge(case, self._desk)
        return replace(verdict, metrics={**verdict.metrics, "ruler/fallback": 1})

    def _count_failure(self, error: JudgeError) -> None:
        self._unscored += 1
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= self._max_failures:
            raise type(error)(
                f"the judge failed on {self._failures_in_a_row} groups in a row; the last time: "
                f"{error.problem}",
                error.remedy,
            ) from error


async def score(
    group: TrajectoryGroup,
    judge: JudgeSpec | Sequence[JudgeSpec],
    rubric: Rubric = DEFAULT_RUBRIC,
    *,
    mode: Mode = "relative",
) -> TrajectoryGroup:
    """Score one group; see `Ruler` for more to set and `Ruler.score` for what comes back."""
    return await Ruler(judge, rubric, mode=mode).score(group)
