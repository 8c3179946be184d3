"""Starting the run in processes of its own, ending them, and looking at what is left."""

from __future__ import annotations

import json
import multiprocessing
import signal
import sqlite3
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from art_core.runs import RunReader
from art_core.runs.records import RecordStore
from art_core.trajectories import Trajectory
from tests.faults import training

PATIENCE = 120.0
"""Seconds after which a start is taken to hang."""


def server() -> Any:
    """Forks processes that have the heavy imports behind them, and nothing else."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            "tests.faults.training",
            "tests.faults.points",
            "art_core.backends.trained",
            "art_core.gateway",
            "art_core.runs.plot",
            "matplotlib.figure",
            "transformers.models.llama.modeling_llama",
        ]
    )
    return context


class Runs:
    """Starts of runs of one base model."""

    def __init__(self, base_model: Path) -> None:
        self._base_model = base_model
        self.seconds = 0.0
        """What the last whole run took."""
        self._context = server()

    def begin(self, root: Path, point: str | None = None, number: int = 1) -> BaseProcess:
        """Start the run, or go on with it; it may be killed at any time."""
        process = self._context.Process(
            target=training.start, args=(root, self._base_model, log_of(root), point, number)
        )
        process.start()
        return process

    def kill_at(self, root: Path, point: str, number: int = 1) -> None:
        """One start, which ends itself when it comes to a point for the n-th time."""
        process = self.begin(root, point, number)
        process.join(PATIENCE)
        ended_by = (-signal.SIGKILL, -signal.SIGXFSZ)
        assert process.exitcode in ended_by, f"{point}: {process.exitcode}\n{read_log(root)}"

    def kill_after(self, root: Path, seconds: float) -> bool:
        """One start, killed after so many seconds; whether it was still running."""
        process = self.begin(root)
        process.join(seconds)
        process.kill()
        process.join(PATIENCE)
        assert process.exitcode in (0, -signal.SIGKILL), read_log(root)
        return process.exitcode != 0

    def finish(self, root: Path) -> Result:
        """One start that nobody disturbs, and what the run has become."""
        started = time.monotonic()
        process = self.begin(root)
        process.join(PATIENCE)
        self.seconds = max(self.seconds, time.monotonic() - started)
        assert process.exitcode == 0, f"exit code {process.exitcode}\n{read_log(root)}"
        return look(root)


@dataclass(frozen=True, slots=True)
class Result:
    """A finished run. Equal to that of another if nothing was lost, doubled or changed."""

    steps: int
    weights: bytes
    optimizer: bytes
    updates: int
    rewards: dict[str, dict[int, float]]
    trained: dict[int, list[str]]
    """Groups by step, without the run's id."""
    texts: dict[int, list[str]]
    """What was sampled for each step, and trained on."""
    checkpoints: list[int]
    leftovers: list[str]


def look(root: Path) -> Result:
    """Read all that a run left, and check that it belongs together."""
    (run,) = (RunReader(path.parent) for path in root.glob("*/*/run.json"))
    for checkpoint in run.checkpoints.all():
        checkpoint.verify()
    latest = run.checkpoints.get(run.step)
    groups = {
        step: run.trajectories.read("train", step) for step in run.trajectories.steps("train")
    }
    check_trained_once(run, [group.id for step in groups for group in groups[step]])
    trajectories = [t for step in groups for group in groups[step] for t in group.trajectories]
    check_recorded(run, trajectories)
    rows = run.metrics.read()
    return Result(
        steps=run.step,
        weights=(latest.path / "adapter_model.safetensors").read_bytes(),
        optimizer=(latest.path / "optimizer.safetensors").read_bytes(),
        updates=json.loads((latest.path / "trainer.json").read_text())["updates"],
        rewards={
            split: {row.step: row.metrics["reward"] for row in rows if row.split == split}
            for split in ("train", "val")
        },
        trained={step: [g.id.split("-", 1)[1] for g in groups[step]] for step in groups},
        texts={
            step: [str(sampled(t)) for group in groups[step] for t in group.trajectories]
            for step in groups
        },
        checkpoints=[checkpoint.step for checkpoint in run.checkpoints.all()],
        leftovers=[
            path.name
            for path in run.path.rglob("*")
            if path.name.startswith(".") or path.parent.name == "journal"
        ],
    )


def check_trained_once(run: RunReader, groups: list[str]) -> None:
    """No group is in two steps, and the index of trained groups says the same as the files."""
    lines = [json.loads(line) for line in (run.path / "steps.jsonl").read_text().splitlines()]
    indexed = [group for line in lines for group in line["group_ids"]]
    assert sorted(indexed) == sorted(groups)
    assert max(Counter(groups).values()) == 1


def check_recorded(run: RunReader, trajectories: list[Trajectory]) -> None:
    """Each trained completion is in one trajectory, and in the store with the same tokens."""
    with sqlite3.connect(run.records_path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    store = RecordStore(run.records_path)
    try:
        records = {record.id: record for record in store}
        trained = [i for t in trajectories for h in t.histories for i in h.completion_ids]
        assert max(Counter(trained).values()) == 1
        assert all(records[i].may_be_trained for i in trained)
        for trajectory in trajectories:
            tokens = [
                token
                for history in trajectory.histories
                for i in history.completion_ids
                for token in records[i].completion_token_ids
            ]
            assert tokens == sampled(trajectory)
        assert store.quarantined() == 0
    finally:
        store.close()


def sampled(trajectory: Trajectory) -> list[int]:
    return [
        token
        for history in trajectory.histories
        for token, on in zip(history.token_ids, history.loss_mask, strict=True)
        if on
    ]


def log_of(root: Path) -> Path:
    return root.with_suffix(".log")


def read_log(root: Path) -> str:
    return log_of(root).read_text() if log_of(root).exists() else ""
