"""From played groups to scored ones."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from art_core.rollouts.prepare import check_scored, describe
from art_core.trajectories import Trajectory, TrajectoryGroup, TrajectoryStatus

logger = logging.getLogger(__name__)

Scorer = Callable[[TrajectoryGroup], Awaitable[TrajectoryGroup | None]]
"""Sets the rewards of a group's trajectories; None: it couldn't, and the group is left out."""


async def score_group(group: TrajectoryGroup, scorer: Scorer | None) -> TrajectoryGroup | None:
    """The group with a reward for each trajectory that didn't fail; None if the scorer gave none.

    Raises:
        RewardError: a trajectory has no reward after that; names its rollout.
    """
    finished = finished_trajectories(group)
    if scorer is not None and finished:
        given = await scorer(group.model_copy(update={"trajectories": finished}))
        if given is None:
            logger.warning("group %s was left unscored by the scorer and isn't used", group.id)
            return None
        # What the group is must not depend on how carefully a scorer copies it.
        group = group.model_copy(
            update={
                "trajectories": [
                    *given.trajectories,
                    *(t for t in group.trajectories if t.status is TrajectoryStatus.FAILED),
                ],
                "metadata": {**group.metadata, **given.metadata},
                "metrics": {**group.metrics, **given.metrics},
                "logs": given.logs or group.logs,
            }
        )
    for number, trajectory in enumerate(finished_trajectories(group)):
        check_scored(trajectory, describe(trajectory, f"trajectory {number} of group {group.id}"))
    return group


def finished_trajectories(group: TrajectoryGroup) -> list[Trajectory]:
    """Those that can be scored and trained on."""
    return [t for t in group.trajectories if t.status is not TrajectoryStatus.FAILED]
