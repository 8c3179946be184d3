"""What the commands say about a run, read from its directory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from art_core.errors import RunError
from art_core.runs import TRAIN_SPLIT, VALIDATION_SPLIT, MetricsRow, RunReader
from art_core.trajectories import Trajectory


def summarize(run: RunReader) -> dict[str, Any]:
    """One run as JSON: what it is, how far it is, and its rewards."""
    identity = run.identity
    rows = run.metrics.read()
    return {
        "project": identity.project,
        "model": identity.model,
        "run_id": identity.run_id,
        "base_model": identity.base_model,
        "step": run.step,
        "active": run.active,
        "created_at": identity.created_at.isoformat(),
        "path": str(run.path),
        "training_reward": _first_and_last(rewards(rows, TRAIN_SPLIT)),
        "held_out_reward": _first_and_last(rewards(rows, VALIDATION_SPLIT)),
    }


def rewards(rows: list[MetricsRow], split: str) -> list[tuple[float, float]]:
    """(training steps that the policy had had, mean reward) by step.

    The rollouts that step ``s`` was trained on were sampled by the policy of step ``s - 1``.
    """
    shift = 1 if split == TRAIN_SPLIT else 0
    return [
        (float(row.step - shift), row.metrics["reward"])
        for row in rows
        if row.split == split and math.isfinite(row.metrics.get("reward", math.nan))
    ]


def rows_as_json(rows: list[MetricsRow]) -> list[dict[str, Any]]:
    """Metrics as JSON has them: what wasn't finite is null."""
    return [
        {
            "step": row.step,
            "split": row.split,
            "time": row.time,
            **{name: v if math.isfinite(v) else None for name, v in row.metrics.items()},
        }
        for row in rows
    ]


def find_trajectory(run: RunReader, rollout: str | None) -> tuple[str, int, Trajectory] | None:
    """Split, step and trajectory of a rollout; without a name, one of the newest rollouts.

    Raises:
        RunError: no rollout's id begins like that, or several rollouts' do.
    """
    if rollout is None:
        return next(_trajectories(run), None)
    found = {
        trajectory.rollout_id: (split, step, trajectory)
        for split, step, trajectory in _trajectories(run)
        if trajectory.rollout_id is not None and trajectory.rollout_id.startswith(rollout)
    }
    if len(found) == 1:
        return next(iter(found.values()))
    name = f"{run.identity.project}/{run.identity.model}"
    if not found:
        raise RunError(
            f"no rollout of {name} has an id that begins with {rollout!r}",
            f"'art runs show {name} --json' has the ids; those of pruned steps are gone.",
        )
    raise RunError(
        f"{len(found)} rollouts of {name} have ids that begin with {rollout!r}",
        "Give more of the id.",
    )


def _trajectories(run: RunReader) -> Iterator[tuple[str, int, Trajectory]]:
    """Newest step first, held-out before training."""
    files = run.trajectories
    places = [(step, split) for split in files.splits() for step in files.steps(split)]
    for step, split in sorted(places, key=lambda p: (-p[0], p[1] == TRAIN_SPLIT)):
        for group in files.read(split, step):
            for trajectory in group.trajectories:
                yield split, step, trajectory


def _first_and_last(points: list[tuple[float, float]]) -> dict[str, float] | None:
    if not points:
        return None
    values = [value for _, value in points]
    return {"first": values[0], "last": values[-1], "best": max(values)}
