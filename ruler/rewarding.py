"""A judge's verdict made into rewards; pure functions from group to group."""

from __future__ import annotations

import math
from collections.abc import Callable

from pydantic import JsonValue

from art_core.errors import ConfigError, JudgeError, RewardError
from art_core.trajectories import Trajectory, TrajectoryGroup, check_reward
from ruler.answers import Judgement
from ruler.case import Case
from ruler.methods.judge import Verdict

Combine = Callable[[float, Trajectory], float]
"""The reward from the judge's score and the trajectory, which still has its own reward."""


_SCORED = "ruler/scored"


def weighted(*, judge: float, own: float) -> Combine:
    """Reward = ``judge`` × the judge's score + ``own`` × the reward that the rollout set itself."""
    if not (math.isfinite(judge) and math.isfinite(own)):
        raise ConfigError(f"weights are judge={judge}, own={own}", "Give finite numbers.")

    def combine(score: float, trajectory: Trajectory) -> float:
        if trajectory.reward is None:
            raise RewardError(
                "reward is None, and is to be combined with the judge's score",
                "Set trajectory.reward in the rollout, or drop combine=….",
            )
        return judge * score + own * trajectory.reward

    return combine


def with_rewards(
    group: TrajectoryGroup, case: Case, verdict: Verdict, combine: Combine | None
) -> TrajectoryGroup:
    """A copy of the group in which the case's trajectories have rewards."""
    judgement_of = {
        id(trajectory): judgement
        for trajectory, judgement in zip(case.trajectories, verdict.judgements, strict=True)
    }
    trajectories = [
        _with_reward(trajectory, judgement_of[id(trajectory)], combine)
        if id(trajectory) in judgement_of
        else trajectory
        for trajectory in group.trajectories
    ]
    metrics = {
        **group.metrics,
        **case.tally.as_metrics(),
        **verdict.metrics,
        "ruler/duplicates": len(case.trajectories) - len(case.entries),
        _SCORED: 1,
    }
    return group.model_copy(update={"trajectories": trajectories, "metrics": metrics})


def _with_reward(
    trajectory: Trajectory, judgement: Judgement, combine: Combine | None
) -> Trajectory:
    reward = judgement.score
    if combine is not None:
        reward = check_reward(combine(reward, trajectory))
    metadata: dict[str, JsonValue] = dict(trajectory.metadata)
    if judgement.explanation:
        metadata["ruler_explanation"] = judgement.explanation
    by_criterion = {f"ruler/{name}": score for name, score in judgement.criteria.items()}
    return trajectory.model_copy(
        update={
            "reward": reward,
            "metrics": {
                **trajectory.metrics,
                **_own_reward(trajectory),
                **by_criterion,
                "ruler_score": judgement.score,
            },
            "metadata": metadata,
        }
    )


def without_rewards(group: TrajectoryGroup, case: Case, error: JudgeError) -> TrajectoryGroup:
    """A copy of the group without rewards, which says why."""
    trajectories = [
        trajectory.model_copy(
            update={
                "reward": None,
                "metrics": {**trajectory.metrics, **_own_reward(trajectory)},
            }
        )
        for trajectory in group.trajectories
    ]
    metrics = {**group.metrics, **case.tally.as_metrics(), _SCORED: 0}
    logs = [*group.logs, f"ruler: unscored: {error}"]
    return group.model_copy(update={"trajectories": trajectories, "metrics": metrics, "logs": logs})


def is_unscored(group: TrajectoryGroup) -> bool:
    """Whether a judge failed on this group."""
    return group.metrics.get(_SCORED) == 0


def _own_reward(trajectory: Trajectory) -> dict[str, float]:
    return {} if trajectory.reward is None else {"independent_reward": trajectory.reward}
