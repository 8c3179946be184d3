"""What ``art auto`` does."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from art_core.backends.local import LocalBackend
from art_core.config import TrainConfig
from art_core.errors import ConfigError
from art_core.rollouts import TrainableModel
from art_core.trajectories import Tool, Trajectory
from ruler.auto.run import AutoReport, autorl
from ruler.auto.scenario import Scenario
from ruler.checking import judge_model, read_text
from ruler.tally import Budget

Agent = Callable[[TrainableModel[Any], Scenario], Awaitable[Trajectory]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoOptions:
    """As on the command line."""

    task: str
    judge: str
    judge_url: str | None
    key_env: str
    base_model: str
    name: str
    project: str
    agent: str | None
    tools: Path | None
    examples: Path | None
    scenarios: int
    tries: int
    max_tokens: int
    max_usd: float | None
    root: Path
    config: TrainConfig


def run_auto(options: AutoOptions) -> None:
    """Train, and print the report."""
    report = asyncio.run(_auto(options))
    Console().print(report_table(report))


async def _auto(options: AutoOptions) -> AutoReport:
    agent = _load(options.agent) if options.agent else _answer(options.task, options.max_tokens)
    model = TrainableModel[Any](
        name=options.name, project=options.project, base_model=options.base_model
    )

    async def play(scenario: Scenario) -> Trajectory:
        return await agent(model, scenario)

    async with LocalBackend(options.root) as backend:
        await model.register(backend)
        return await autorl(
            model,
            play,
            judge=judge_model(options.judge, options.judge_url, options.key_env),
            task=options.task,
            tools=None if options.tools is None else _tools(options.tools),
            examples=None if options.examples is None else _lines(options.examples),
            scenarios=options.scenarios,
            tries=options.tries,
            config=options.config,
            budget=Budget(usd=options.max_usd),
        )


def _answer(task: str, max_tokens: int) -> Agent:
    """The agent that there is without one: the model answers, and that's all."""

    async def answer(model: TrainableModel[Any], scenario: Scenario) -> Trajectory:
        async with model.rollout(scenario) as trajectory:
            await model.openai_client().chat.completions.create(
                model=model.get_inference_name(),
                messages=[
                    {"role": "system", "content": task},
                    {"role": "user", "content": scenario.task},
                ],
                max_tokens=max_tokens,
            )
        return trajectory

    return answer


def _load(where: str) -> Agent:
    module, colon, function = where.partition(":")
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` has it: agents lie where one works
    try:
        found = getattr(importlib.import_module(module), function) if colon else None
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"agent {where!r} can't be imported: {error}", _AGENT_REMEDY) from error
    finally:
        sys.path.remove(str(Path.cwd()))
    if not callable(found):
        raise ConfigError(f"agent is {where!r}, which is no function", _AGENT_REMEDY)
    return cast("Agent", found)


_AGENT_REMEDY = "Write module:function, of a module in this folder or an installed one."


def _tools(path: Path) -> list[Tool]:
    try:
        tools = json.loads(read_text(path))
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}", "Write a list of tools.") from error
    if not isinstance(tools, list):
        raise ConfigError(f"{path} holds no list", "Write a list of tools.")
    return cast("list[Tool]", tools)


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]


def report_table(report: AutoReport) -> Table:
    """The end of it, for a terminal."""
    table = Table(title="AutoRL", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    training = report.training
    rewards = " → ".join(
        "–" if value is None else f"{value:.3f}" for value in (training.before, training.after)
    )
    cost = report.judging
    unpriced = f" and {cost.unpriced_calls} calls of unknown price" if cost.unpriced_calls else ""
    rows = [
        ("scenarios", f"{len(report.trained_on)} to train on, {len(report.held_out)} held out"),
        ("left out", f"{len(report.dropped)}"),
        ("won against the untrained model", str(report.win_rate)),
        ("held-out score", rewards),
        ("judging", f"{cost.calls:,} calls, {cost.cost_usd:.2f} US${unpriced}"),
        ("run", str(training.run_path)),
    ]
    for name, value in rows:
        table.add_row(name, value)
    return table
