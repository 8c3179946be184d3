from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from art_core.errors import ConfigError, RunDamagedError
from art_core.runs.metrics import MetricsLog, group_metrics, own_metrics
from art_core.trajectories import Trajectory, TrajectoryGroup, TrajectoryStatus

MakeGroup = Callable[..., TrajectoryGroup]


def test_lines_of_a_step_and_split_are_merged_the_later_ones_prevailing(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append(2, "train", {"reward": 0.5, "loss": 1.0})
    log.append(1, "val", {"reward": 0.25})
    log.append(2, "train", {"loss": 2.0, "seconds": 3.0})
    rows = log.read()
    assert [(row.step, row.split) for row in rows] == [(1, "val"), (2, "train")]
    assert rows[1].metrics == {"reward": 0.5, "loss": 2.0, "seconds": 3.0}


def test_what_is_not_finite_is_null_in_the_file_and_nan_here(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append(1, "train", {"a": math.nan, "b": -math.inf, "c": True})
    line = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(line, parse_constant=pytest.fail)["a"] is None
    metrics = log.read()[0].metrics
    assert math.isnan(metrics["a"])
    assert math.isnan(metrics["b"])
    assert metrics["c"] == 1.0


@pytest.mark.parametrize("name", ["step", "split", "time"])
def test_names_that_each_line_has_are_refused(tmp_path: Path, name: str) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    with pytest.raises(ConfigError, match=f"a metric is called '{name}'"):
        log.append(1, "train", {name: 7})
    log.append(1, "train", {"step": 1, "a": 2})
    assert log.read()[0].metrics == {"a": 2}


def test_a_metric_that_is_not_a_number_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "split": "train", "time": 0, "loss": "low"}\n')
    with pytest.raises(RunDamagedError, match="loss of step 1 is 'low'"):
        MetricsLog(path).read()


def test_groups_in_numbers(make_group: MakeGroup) -> None:
    spread = make_group((0.0, 1.0))
    spread.trajectories[0].metrics = {"tools": 3, "tokens": 5}
    spread.trajectories[1].status = TrajectoryStatus.TRUNCATED
    flat = make_group((0.5, 0.5), metrics={"judge": 2.0})
    failed = TrajectoryGroup(
        [
            Trajectory(status=TrajectoryStatus.FAILED, reward=9.0),
            Trajectory(reward=None),
            ValueError("x"),
        ]
    )
    metrics = group_metrics([spread, flat, failed])
    assert metrics == {
        "tools": 3.0,
        "own/tokens": 5.0,
        "group/judge": 2.0,
        "groups": 3,
        "trajectories": 6,
        "exceptions": 1,
        "failed": 1,
        "truncated": 1,
        "unscored": 1,
        "groups_without_spread": pytest.approx(2 / 3),
        "sampled_tokens": pytest.approx(8 / 6),
        "tokens": pytest.approx(12 / 6),
        "reward": 0.5,
        "reward_spread": 0.25,
    }
    assert own_metrics(metrics) == {"tools": 3.0, "own/tokens": 5.0, "group/judge": 2.0}


def test_nothing_scored_has_no_reward() -> None:
    assert "reward" not in group_metrics([TrajectoryGroup([Trajectory()])])
    assert group_metrics([])["groups"] == 0
