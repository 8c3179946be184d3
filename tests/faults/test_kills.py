"""A run that is killed, wherever and however often, ends as one that wasn't."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.harness import Result, Runs
from tests.faults.points import POINTS

QUICK = {
    # Several in one run: each start goes on where the one before was killed.
    "early": ["in a held-out rollout", "between reward and record", "in a line of the journal"],
    "step": ["in the backward pass", "after the optimizer moved", "in a file of trajectories"],
    "commit": ["in a checkpoint's manifest", "before a checkpoint is renamed", "after a commit"],
    "after": ["right after a checkpoint is renamed", "before an adapter is loaded"],
}


@pytest.mark.parametrize("name", QUICK)
def test_killed_at_several_points(
    runs: Runs, undisturbed: Result, tmp_path: Path, name: str
) -> None:
    for point in QUICK[name]:
        runs.kill_at(tmp_path / "runs", point)
    assert runs.finish(tmp_path / "runs") == undisturbed


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_each_point(runs: Runs, undisturbed: Result, tmp_path: Path, point: str) -> None:
    runs.kill_at(tmp_path / "runs", point)
    assert runs.finish(tmp_path / "runs") == undisturbed


@pytest.mark.long
@pytest.mark.parametrize("seed", range(35))
def test_killed_at_random_times(runs: Runs, undisturbed: Result, tmp_path: Path, seed: int) -> None:
    """Five kills in each run: with those above, 200."""
    times = random.Random(seed)
    for _ in range(5):
        runs.kill_after(tmp_path / "runs", times.uniform(0.0, runs.seconds))
    assert runs.finish(tmp_path / "runs") == undisturbed
