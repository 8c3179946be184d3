"""What ``art mcp train`` does."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from art_core.backends.local import LocalBackend
from art_core.config import SftConfig, TrainConfig
from art_core.errors import ConfigError, RunMismatchError
from art_core.rollouts import TrainableModel, TrainReport, train
from art_core.rollouts.scenarios import scenario_digest
from art_core.runs import RunDirectory, write_whole
from integrations.mcp.agent import SYSTEM, MCPAgent, Reward
from integrations.mcp.demonstrating import Teacher, scripted, warm_start
from integrations.mcp.judging import JudgeReward
from integrations.mcp.loop import Limits
from integrations.mcp.making import TaskScenario, make, read_tasks
from integrations.mcp.pool import Isolation, Reset, ServerPool
from integrations.mcp.servers import Server
from ruler import JudgeModel, WinRate, split_scenarios, win_rate
from ruler.auto.winning import before_and_after

FOLDER = "mcp"
"""In the run directory: scenarios, the setup, and transcripts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """As on the command line."""

    servers: Sequence[Server]
    tools: Collection[str] | None
    base_model: str
    name: str
    project: str
    judge: JudgeModel | None
    reward: Reward | None
    scenarios: int
    scenarios_file: Path | None
    held_out: float
    instructions: str | None
    system: str | None
    limits: Limits
    isolation: Isolation
    pool_size: int
    sandbox: Path | None
    reset: Reset | None
    warm_start: int
    """Scenarios that are demonstrated before the first rollout."""
    teacher: Teacher | None
    """None: the scenarios say how it's done."""
    min_reward: float
    root: Path
    config: TrainConfig

    def check(self) -> None:
        """Raises ConfigError: what is there doesn't make a training."""
        if (self.judge is None) == (self.reward is None):
            raise ConfigError(
                "both --judge and --reward are given" if self.judge else "nothing gives rewards",
                "Give --judge MODEL or --reward module:function.",
            )
        if self.judge is None and self.scenarios_file is None:
            raise ConfigError(
                "there is nobody to write scenarios", "Give --scenarios-file, or a --judge."
            )
        if self.warm_start and self.teacher is None and self.scenarios_file is None:
            raise ConfigError(
                "there is nobody to demonstrate",
                "Give --teacher MODEL, or --scenarios-file with demonstrations.",
            )
        if self.teacher is not None and not self.warm_start:
            raise ConfigError(
                "--teacher is given without --warm-start", "Say how many scenarios it shows."
            )
        if not 0 < self.held_out < 1:
            raise ConfigError(f"held-out is {self.held_out}", "Give a share between 0 and 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What came of it."""

    report: TrainReport
    win_rate: WinRate | None
    """Of the trained model against the untrained one, on the held-out scenarios; None: no
    judge is there to compare them."""


async def run_training(training: Training) -> Trained:
    """Train, or go on training.

    Raises:
        RunMismatchError: the run was begun with other servers or scenarios.
        ConfigError, ToolServerStartError, JudgeError, …: see `train`, `ServerPool`, `Ruler`.
    """
    training.check()
    model = TrainableModel[Any](
        name=training.name, project=training.project, base_model=training.base_model
    )
    pool = ServerPool(
        training.servers,
        isolation=training.isolation,
        size=training.pool_size,
        sandbox=training.sandbox,
        reset=training.reset,
    )
    async with LocalBackend(training.root) as backend, pool:
        await model.register(backend)
        run = backend.run_directory(model)
        to_train, held_out = await _scenarios(training, run)
        _check_same(training, run, [*to_train, *held_out])
        agent = MCPAgent(
            model,
            pool,
            reward=training.reward,
            limits=training.limits,
            system=SYSTEM if training.system is None else training.system,
            tools=training.tools,
        )
        judging = None if training.judge is None else JudgeReward(training.judge, held_out)
        config = await _warmed(training, run, agent, to_train, judging)
        report = await train(model, agent, to_train, config, validation=held_out, reward=judging)
        won = (
            None
            if judging is None
            else await win_rate(before_and_after(run, report.steps), judging.in_pairs)
        )
        return Trained(report=report, win_rate=won)


_BATCH = 8
"""Demonstrations in an update: a few dozen are there."""
_ATTEMPTS = 2
"""Of a teacher at a scenario."""


async def _warmed(
    training: Training,
    run: RunDirectory,
    agent: MCPAgent,
    scenarios: Sequence[TaskScenario],
    judging: JudgeReward | None,
) -> TrainConfig:
    """The settings, with demonstrations to learn from first where they are wanted."""
    if not training.warm_start:
        return training.config
    if training.warm_start > len(scenarios):
        raise ConfigError(
            f"--warm-start is {training.warm_start}, and there are {len(scenarios)} scenarios to "
            "train on",
            "Demonstrate fewer, or give more.",
        )
    start = await warm_start(
        agent,
        run.path / FOLDER / "demonstrations.jsonl",
        scenarios[: training.warm_start],
        training.teacher or scripted,
        attempts=1 if training.teacher is None else _ATTEMPTS,
        min_reward=training.min_reward,
        reward=None if judging is None else judging.absolute,
        # What the policy can't write or read of a teacher's is left out, counted and named.
        sft=SftConfig(
            batch_size=_BATCH, seed=training.config.seed, bad_examples="skip", long_examples="skip"
        ),
    )
    return training.config.model_copy(update={"warm_start": start})


async def _scenarios(
    training: Training, run: RunDirectory
) -> tuple[list[TaskScenario], list[TaskScenario]]:
    """To train on, and held out."""
    if training.scenarios_file is not None:
        tasks = read_tasks(training.scenarios_file)
        random.Random(training.config.seed).shuffle(tasks)
        count = min(max(1, round(training.held_out * len(tasks))), len(tasks) - 1)
        return tasks[count:], tasks[:count]
    assert training.judge is not None  # `check` saw to it
    made = await make(
        training.servers,
        judge=training.judge,
        count=training.scenarios,
        path=run.path / FOLDER / "scenarios.jsonl",
        tools=training.tools,
        sandbox=training.sandbox,
        instructions=training.instructions,
        seed=training.config.seed,
    )
    split = split_scenarios(made.scenarios, validation=training.held_out, seed=training.config.seed)
    to_train, held_out = ([one.model_dump(mode="json") for one in side] for side in split)
    return to_train, held_out


def _check_same(training: Training, run: RunDirectory, scenarios: list[TaskScenario]) -> None:
    """A run goes on only with what it was begun with. No secret is part of it."""
    now = {
        "servers": [str(server) for server in training.servers],
        "tools": None if training.tools is None else sorted(training.tools),
        "scenarios": sorted(scenario_digest(one) for one in scenarios),
        "system": training.system,
        "limits": training.limits.model_dump(mode="json"),
        "warm_start": _demonstrations(training),
    }
    path = run.path / FOLDER / "setup.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, [json.dumps(now, indent=1).encode()])
        return
    before = json.loads(path.read_text("utf-8"))
    changed = [key for key, value in now.items() if before.get(key) != value]
    if changed:
        raise RunMismatchError(
            f"{run.path} was begun with other {' and '.join(changed)}",
            "Use the same ones, or another --name.",
        )


def _demonstrations(training: Training) -> dict[str, JsonValue] | None:
    if not training.warm_start:
        return None
    return {
        "scenarios": training.warm_start,
        "teacher": None if training.teacher is None else training.teacher.model,
        "min_reward": training.min_reward,
    }
