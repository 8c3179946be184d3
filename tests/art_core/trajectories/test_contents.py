"""What an agent puts into a trajectory's containers, where no assignment is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from art_core.errors import RunError, TrajectoryError
from art_core.rollouts import gather_trajectory_groups
from art_core.runs import RunDirectory
from art_core.trajectories import Trajectory, TrajectoryGroup

_CYCLE: dict[str, Any] = {}
_CYCLE["again"] = _CYCLE

UNUSABLE: dict[str, Callable[[Any], None]] = {
    "metrics.accuracy": lambda t: t.metrics.update(accuracy="high"),
    "metrics.nothing": lambda t: t.metrics.update(nothing=None),
    "metrics.huge": lambda t: t.metrics.update(huge=10**400),
    "metrics.\\ud800": lambda t: t.metrics.update({"\ud800": 1.0}),
    "metadata.thing": lambda t: t.metadata.update(thing=object()),
    "metadata": lambda t: t.metadata.update(half="\udcff"),
    "metadata.cycle": lambda t: t.metadata.update(cycle=_CYCLE),
    "logs": lambda t: t.log("\ud800"),
    "logs.0": lambda t: t.log(5),
    "messages_and_choices": lambda t: t.messages_and_choices.append(
        {"role": "user", "content": "\ud800"}
    ),
}


def open_run(root: Path) -> RunDirectory:
    return RunDirectory.open(root, project="p", model="m", base_model="tiny")


def spoilt(place: str) -> Trajectory:
    trajectory = Trajectory(reward=1.0, rollout_id="r-17")
    UNUSABLE[place](trajectory)
    return trajectory


@pytest.mark.parametrize("place", UNUSABLE)
async def test_a_rollout_with_unusable_contents_fails_alone(place: str) -> None:
    async def play(place: str | None) -> Trajectory:
        return spoilt(place) if place else Trajectory(reward=0.0)

    pending = TrajectoryGroup([play(None), play(place)])
    (group,) = await gather_trajectory_groups([pending], pbar_desc=None, max_exceptions=1)
    assert [t.reward for t in group] == [0.0]
    (failure,) = group.exceptions
    assert place in failure.message
    assert "r-17" in failure.message


@pytest.mark.parametrize("place", UNUSABLE)
def test_a_run_never_writes_a_group_that_it_could_not_read_again(
    place: str, tmp_path: Path
) -> None:
    good = TrajectoryGroup([Trajectory(reward=0.0), Trajectory(reward=1.0)])
    bad = TrajectoryGroup([Trajectory(reward=0.0), spoilt(place)])
    with open_run(tmp_path) as run:
        run.journal.add(1, good)
        with pytest.raises(TrajectoryError, match="r-17"):
            run.journal.add(1, bad)
        with pytest.raises(TrajectoryError, match="r-17"):
            run.log_groups(0, "val", [bad])
    with open_run(tmp_path) as run:
        assert list(run.journal.read(1)) == [good.id]
        assert run.metrics.read() == []
        with pytest.raises(RunError, match="Steps: none"):
            run.trajectories.read("val", 0)


def test_numpy_numbers_are_metrics(tmp_path: Path) -> None:
    trajectory = Trajectory(reward=1.0)
    cast("dict[str, Any]", trajectory.metrics).update(accuracy=np.float32(0.5), turns=np.int64(3))
    with open_run(tmp_path) as run:
        run.log_groups(0, "val", [TrajectoryGroup([trajectory])])
        (read,) = run.trajectories.read("val", 0)[0]
    assert read.metrics == {"accuracy": 0.5, "turns": 3}


async def test_an_exception_that_can_not_be_printed_is_one_failure_among_others() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise KeyError("no text")

    async def play(works: bool) -> Trajectory:
        if works:
            return Trajectory(reward=1.0)
        raise Unprintable

    pending = TrajectoryGroup([play(True), play(False)])
    (group,) = await gather_trajectory_groups([pending], pbar_desc=None, max_exceptions=1)
    assert len(group) == 1
    assert "KeyError in" in group.exceptions[0].message
