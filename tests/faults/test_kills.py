"""A run that is killed, wherever and however often, ends as one that wasn't.

The same steps, groups, rewards, sampled tokens, weights and optimizer state, to the bit.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.harness import Result, Runs
from tests.faults.points import POINTS

QUICK = [
    "in a held-out rollout",
    "between reward and record",
    "in a line of the journal",
    "in the backward pass",
    "after the optimizer moved",
    "in a file of trajectories",
    "in a checkpoint's manifest",
    "before a checkpoint is renamed",
    "right after a checkpoint is renamed",
    "before an adapter is loaded",
    "after a commit",
    "before held-out trajectories are renamed",
]
ONCE = {"before a checkpoint is removed", "while a checkpoint is removed"}
"""In four steps, of which two and the best are kept, one checkpoint is removed."""
RANDOM_RUNS, RANDOM_KILLS = 38, 4


def test_a_dozen_kills_in_one_run(runs: Runs, undisturbed: Result, tmp_path: Path) -> None:
    for point in QUICK:  # each start goes on where the one before it was killed
        runs.kill_at(tmp_path / "runs", point)
    assert runs.finish(tmp_path / "runs") == undisturbed


@pytest.mark.long
@pytest.mark.parametrize(
    ("point", "number"),
    [(point, number) for point in POINTS for number in (1, 2) if number == 1 or point not in ONCE],
)
def test_a_kill_at_each_point(
    runs: Runs, undisturbed: Result, tmp_path: Path, point: str, number: int
) -> None:
    runs.kill_at(tmp_path / "runs", point, number)
    assert runs.finish(tmp_path / "runs") == undisturbed


@pytest.mark.long
@pytest.mark.parametrize("seed", range(RANDOM_RUNS))
def test_kills_at_random_times(runs: Runs, undisturbed: Result, tmp_path: Path, seed: int) -> None:
    times = random.Random(seed)
    killed, begun = 0, 0
    while killed < RANDOM_KILLS:  # a run that was quick enough to end is followed by another
        root = tmp_path / f"runs-{begun}"
        while killed < RANDOM_KILLS and runs.kill_after(root, times.uniform(0.0, runs.seconds)):
            killed += 1
        assert runs.finish(root) == undisturbed
        begun += 1
