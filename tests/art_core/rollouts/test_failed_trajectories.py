"""A trajectory that says it failed counts as a failure, as an exception does."""

from __future__ import annotations

import pytest

from art_core.errors import TooManyFailuresError
from art_core.rollouts.gather import gather_trajectory_groups
from art_core.trajectories import Trajectory, TrajectoryGroup, TrajectoryStatus

FAILED = Trajectory(status=TrajectoryStatus.FAILED, error="Traceback: no such node")
FINISHED = Trajectory(reward=1.0)


async def play(trajectory: Trajectory) -> Trajectory:
    return trajectory


async def test_it_is_counted_and_kept() -> None:
    pending = TrajectoryGroup(play(each) for each in (FAILED, FINISHED))
    (group,) = await gather_trajectory_groups([pending], pbar_desc=None, max_exceptions=1)
    assert [t.status for t in group] == ["failed", "finished"]
    assert group.exceptions == []


async def test_more_than_allowed_stop_the_gather_with_the_agents_traceback() -> None:
    pending = TrajectoryGroup(play(each) for each in (FAILED, FINISHED))
    with pytest.raises(TooManyFailuresError, match="Traceback: no such node"):
        await gather_trajectory_groups([pending], pbar_desc=None)


async def test_it_is_played_again() -> None:
    results = [FAILED, FINISHED]
    pending = TrajectoryGroup([lambda: play(results.pop(0))])
    (group,) = await gather_trajectory_groups([pending], pbar_desc=None, retries=1)
    assert [t.status for t in group] == ["finished"]
