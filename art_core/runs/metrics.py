"""``metrics.jsonl``: one line per step and split; and what is in it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import cast

from art_core.errors import ConfigError, RunDamagedError
from art_core.runs.files import jsonable_metrics
from art_core.runs.steplog import StepLog
from art_core.trajectories import Trajectory, TrajectoryGroup, TrajectoryStatus

TRAIN_SPLIT = "train"
VALIDATION_SPLIT = "val"

_GROUP_METRICS = frozenset(
    {
        "exceptions",
        "failed",
        "groups",
        "groups_without_spread",
        "reward",
        "reward_spread",
        "sampled_tokens",
        "tokens",
        "trajectories",
        "truncated",
        "unscored",
    }
)
_RESERVED = ("step", "split", "time")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsRow:
    """The metrics of one split at one step."""

    step: int
    """In the split ``train`` the step that was trained; else the step that the model was at."""
    split: str
    time: float
    """Seconds since the epoch."""
    metrics: dict[str, float]
    """None of them is missing: one that wasn't finite is NaN."""


class MetricsLog:
    """Appends and reads metrics.

    A step and split may have several lines (metrics that became known later, or
    known again after a crash): they are merged, the later ones prevailing.
    """

    def __init__(self, path: Path) -> None:
        self.log = StepLog(path)

    def append(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Add metrics; on disk when this returns.

        Raises:
            ConfigError: a metric has a name that `check_metrics` refuses.
            StorageError: the line couldn't be written; the file is as it was.
        """
        clean = jsonable_metrics(check_metrics(step, metrics))
        self.log.append(step, {"split": split, "time": time.time(), **clean})

    def read(self) -> list[MetricsRow]:
        """One row per step and split, by step.

        Raises:
            RunDamagedError: a line can't be read.
        """
        rows: dict[tuple[int, str], MetricsRow] = {}
        for line in self.log.read():
            row = self._row(line)
            earlier = rows.get((row.step, row.split))
            if earlier is not None:
                row.metrics.update({**earlier.metrics, **row.metrics})
            rows[row.step, row.split] = row
        return sorted(rows.values(), key=lambda row: row.step)

    def _row(self, line: dict[str, object]) -> MetricsRow:
        metrics: dict[str, float] = {}
        for name, value in line.items():
            if name in _RESERVED:
                continue
            if value is not None and not isinstance(value, int | float):
                raise RunDamagedError(
                    f"{self.log.lines.path}: {name} of step {line['step']} is {value!r:.100}",
                    "Metrics are numbers: correct or remove that line.",
                )
            metrics[name] = float("nan") if value is None else float(value)
        split, moment = line.get("split"), line.get("time")
        if not isinstance(split, str) or not isinstance(moment, int | float):
            raise RunDamagedError(
                f"{self.log.lines.path}: a line of step {line['step']} has no split or time"
            )
        return MetricsRow(
            step=cast("int", line["step"]), split=split, time=float(moment), metrics=metrics
        )


def check_metrics(step: int, metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics, without a ``step`` that only repeats the line's own.

    Raises:
        ConfigError: one is called ``step``, ``split`` or ``time``, which each line has.
    """
    checked = dict(metrics)
    if checked.get("step") == step:
        del checked["step"]
    clash = [name for name in _RESERVED if name in checked]
    if clash:
        raise ConfigError(
            f"a metric is called {clash[0]!r}", "Each line has its own: choose another name."
        )
    return checked


def group_metrics(groups: Sequence[TrajectoryGroup]) -> dict[str, float]:
    """What a batch of groups looks like in numbers.

    - ``reward``: mean over scored trajectories; ``reward_spread``: mean over groups of
      the standard deviation inside the group (what GRPO learns from).
    - ``groups``, ``trajectories``, ``exceptions`` (rollouts without a trajectory),
      ``failed``, ``truncated``, ``unscored``: counts.
    - ``groups_without_spread``: the share of groups whose rewards are all equal.
    - ``sampled_tokens``, ``tokens``: means per trajectory, over all its histories.
    - each of the trajectories' own metrics: its mean over those that have it; of the
      groups' own, as ``group/<name>``. One that has a name of the above becomes ``own/<name>``.

    ``reward`` and ``reward_spread`` are absent when nothing was scored.
    """
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    spreads = [pstdev(rewards) for group in groups if (rewards := scored_rewards(group))]
    rewards = [reward for group in groups for reward in scored_rewards(group)]
    failed = sum(t.status is TrajectoryStatus.FAILED for t in trajectories)
    counts: dict[str, float] = {
        "groups": len(groups),
        "trajectories": len(trajectories),
        "exceptions": sum(len(group.exceptions) for group in groups),
        "failed": failed,
        "truncated": sum(t.status is TrajectoryStatus.TRUNCATED for t in trajectories),
        "unscored": len(trajectories) - failed - len(rewards),
    }
    if groups:
        counts["groups_without_spread"] = fmean(not has_spread(group) for group in groups)
    if trajectories:
        counts["sampled_tokens"] = fmean(sampled_tokens(t) for t in trajectories)
        counts["tokens"] = fmean(sum(len(h.token_ids) for h in t.histories) for t in trajectories)
    if rewards:
        counts |= {"reward": fmean(rewards), "reward_spread": fmean(spreads)}
    own = _means(trajectory.metrics for trajectory in trajectories)
    own |= {f"group/{name}": mean for name, mean in _means(g.metrics for g in groups).items()}
    taken = {*_GROUP_METRICS, *_RESERVED}
    renamed = {f"own/{name}" if name in taken else name: mean for name, mean in own.items()}
    return {**renamed, **counts}


def own_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Of a split that isn't trained on: the metrics that the agent itself set."""
    return {name: value for name, value in metrics.items() if name not in _GROUP_METRICS}


def scored_rewards(group: TrajectoryGroup) -> list[float]:
    """The rewards that training would compare: of trajectories that didn't fail and have one."""
    return [
        trajectory.reward
        for trajectory in group.trajectories
        if trajectory.status is not TrajectoryStatus.FAILED and trajectory.reward is not None
    ]


def has_spread(group: TrajectoryGroup) -> bool:
    """Whether the rewards differ: without a difference there is nothing to learn from."""
    return len(set(scored_rewards(group))) > 1


def sampled_tokens(trajectory: Trajectory) -> int:
    """Tokens of this trajectory that can be trained on."""
    return sum(history.sampled_tokens for history in trajectory.histories)


def _means(metrics: Iterable[Mapping[str, float | int | bool]]) -> dict[str, float]:
    values: defaultdict[str, list[float]] = defaultdict(list)
    for one in metrics:
        for name, value in one.items():
            values[name].append(float(value))
    return {name: fmean(found) for name, found in values.items()}
