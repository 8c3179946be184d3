"""A small real training run, to be killed: ``python training_script.py ROOT [POINT]``.

At POINT the process sends itself SIGKILL (or another signal, see `POINTS`). Run
again without POINT it goes on to the end and prints what became of it as JSON.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import httpx
from scripted_backend import ScriptedBackend

from art_core.config import TrainConfig
from art_core.rollouts import TrainableModel, train
from art_core.runs import RunDirectory
from art_core.runs.checkpoints import CheckpointStore
from art_core.runs.groups import Journal, TrajectoryFiles
from art_core.runs.metrics import MetricsLog
from art_core.trajectories import Trajectory, TrajectoryGroup

CONFIG = TrainConfig(
    steps=4,
    groups_per_step=3,
    rollouts_per_group=3,
    eval_every=2,
    concurrency=2,
    keep_checkpoints=2,
    seed=3,
)


def die(kind: signal.Signals = signal.SIGKILL) -> None:
    os.kill(os.getpid(), kind)


def at_call(owner: type, name: str, number: int, *, after: bool = False) -> None:
    """Die at the n-th call of a method, before or after it did its work."""
    original: Callable[..., Any] = getattr(owner, name)
    calls = itertools.count(1)  # atomic: some methods are called from several threads

    def dying(*arguments: Any, **options: Any) -> Any:
        at_number = next(calls) == number
        if at_number and not after:
            die()
        result = original(*arguments, **options)
        if at_number and after:
            die()
        return result

    setattr(owner, name, dying)


class Rollouts:
    """Counts the rollouts, and dies in the middle of one."""

    count = 0
    dies_in: int | None = None
    kind = signal.SIGKILL

    @classmethod
    def answered(cls) -> None:
        cls.count += 1
        if cls.count == cls.dies_in:
            die(cls.kind)


def in_rollout(number: int, kind: signal.Signals = signal.SIGKILL) -> None:
    Rollouts.dies_in, Rollouts.kind = number, kind


def with_a_full_disk() -> None:
    """From step 2 on no file can grow."""
    original = Journal.add

    def adding(journal: Journal, step: int, group: TrajectoryGroup) -> None:
        if step == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        original(journal, step, group)

    Journal.add = adding  # type: ignore[method-assign]


def in_training(kind: signal.Signals) -> None:
    """The signal comes while step 2 is being committed."""
    original = CheckpointStore.publish

    def dying(store: CheckpointStore, step: int, write: Any, **options: Any) -> Any:
        if step == 2:
            die(kind)
        return original(store, step, write, **options)

    CheckpointStore.publish = dying  # type: ignore[method-assign]


POINTS: dict[str, Callable[[], None]] = {
    "in the first evaluation": lambda: in_rollout(2),
    "in a rollout": lambda: in_rollout(2 + 9 + 5),
    "in a late rollout": lambda: in_rollout(40),
    "before a group is in the journal": lambda: at_call(Journal, "add", 5),
    "after a group is in the journal": lambda: at_call(Journal, "add", 5, after=True),
    "before the trajectories are written": lambda: at_call(TrajectoryFiles, "write", 3),
    "after the trajectories are written": lambda: at_call(TrajectoryFiles, "write", 3, after=True),
    "before a checkpoint": lambda: at_call(CheckpointStore, "publish", 2),
    "right after a checkpoint": lambda: at_call(CheckpointStore, "publish", 2, after=True),
    "after the metrics of a step": lambda: at_call(MetricsLog, "append", 3, after=True),
    "after a commit": lambda: at_call(RunDirectory, "commit", 2, after=True),
    "while checkpoints are removed": lambda: at_call(CheckpointStore, "_remove", 1),
    "before an evaluation is logged": lambda: at_call(RunDirectory, "log_groups", 2),
    "after an evaluation is logged": lambda: at_call(RunDirectory, "log_groups", 2, after=True),
    "a full disk": with_a_full_disk,
    "SIGTERM in a rollout": lambda: in_rollout(2 + 9 + 5, signal.SIGTERM),
    "SIGINT in a rollout": lambda: in_rollout(2 + 9 + 5, signal.SIGINT),
    "SIGTERM in a training step": lambda: in_training(signal.SIGTERM),
    "SIGINT in a training step": lambda: in_training(signal.SIGINT),
}


async def main(root: Path) -> None:
    async with ScriptedBackend(root) as backend:
        model = TrainableModel(name="bot", project="shop", base_model="tiny")
        await model.register(backend)

        async def play(scenario: str) -> Trajectory:
            async with model.rollout(scenario) as trajectory:
                url = f"{trajectory.base_url}/chat/completions"
                body = {"model": "bot", "messages": [{"role": "user", "content": scenario}]}
                answer = (await client.post(url, json=body)).json()
                Rollouts.answered()
            trajectory.reward = float(answer["choices"][0]["message"]["content"] == "right")
            return trajectory

        async with httpx.AsyncClient(trust_env=False) as client:
            report = await train(model, play, list("abcdefgh"), CONFIG, validation=list("xy"))
        run = backend.run_directory(model)
        print(
            json.dumps(
                {
                    "steps": report.steps,
                    "played": len(backend.rollouts),
                    "optimizer": (run.checkpoints.get(4).path / "optimizer").read_text(),
                    "checkpoints": [c.step for c in run.checkpoints.all()],
                    "train": report.rewards("train"),
                    "val": report.rewards("val"),
                    "trained": {
                        step: [group.id.split("-", 1)[1] for group in groups]
                        for step in run.trajectories.steps("train")
                        if (groups := run.trajectories.read("train", step))
                    },
                    "leftovers": [
                        p.name
                        for p in run.path.rglob("*")
                        if p.name.startswith(".") or p.parent.name == "journal"
                    ],
                }
            )
        )


if __name__ == "__main__":
    if len(sys.argv) > 2:
        POINTS[sys.argv[2]]()
    asyncio.run(main(Path(sys.argv[1])))
