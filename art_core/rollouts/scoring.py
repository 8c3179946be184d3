"""From played groups to scored ones."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from art_core.rollouts.prepare import check_scored, describe
from art_core.trajectories import TrajectoryGroup

logger = logging.getLogger(__name__)

Scorer = Callable[[TrajectoryGroup], Awaitable[TrajectoryGroup | None]]
"""Sets the rewards of a group's trajectories; None: it couldn't, and the group is left out."""


async def score_group(group: TrajectoryGroup, scorer: Scorer | None) -> TrajectoryGroup | None:
    """The group with a reward for each trajectory; None if the scorer gave none.

    Raises:
        RewardError: a trajectory has no reward after that; names its rollout.
    """
    scored = group
    if scorer is not None and group.trajectories:
        given = await scorer(group)
        if given is None:
            logger.warning("group %s was left unscored by the scorer and isn't used", group.id)
            return None
        # What the group is must not depend on how carefully a scorer copies it.
        metadata = {**group.metadata, **given.metadata}
        scored = given.model_copy(update={"id": group.id, "metadata": metadata})
    for number, trajectory in enumerate(scored.trajectories):
        check_scored(trajectory, describe(trajectory, f"trajectory {number} of group {group.id}"))
    return scored
