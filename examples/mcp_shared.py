"""What the MCP examples have in common: scenarios that say how they are done, a reward that
looks at the call and at the answer, a warm start, and reinforcement learning.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import art_core as art
from art_core.config import SftConfig
from art_core.rollouts import TrainReport
from integrations.mcp import (
    Limits,
    MCPAgent,
    Outcome,
    ServerPool,
    StdioServer,
    ToolCall,
    warm_start,
)

Scenario = dict[str, Any]
"""``task``, and ``demonstration`` with the call and the answer that are right."""


def scenario(task: str, tool: str, arguments: dict[str, Any], answer: str) -> Scenario:
    call = {"name": tool, "arguments": arguments}
    return {"task": task, "demonstration": {"calls": [call], "answer": answer}}


def shuffled(scenarios: Sequence[Scenario], seed: int = 0) -> list[Scenario]:
    return random.Random(seed).sample(scenarios, len(scenarios))


def installed(command: str) -> str:
    """How a server that pip has installed beside this Python is started."""
    return shlex.quote(str(Path(sys.executable).with_name(command)))


def arguments_share(call: ToolCall, wanted: Scenario) -> float:
    """Of the right call's arguments, how many this one has; 0 for another tool."""
    (right,) = wanted["demonstration"]["calls"]
    if call.name != right["name"]:
        return 0.0
    arguments, given = right["arguments"], call.arguments or {}
    return sum(given.get(key) == value for key, value in arguments.items()) / len(arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A server, and tasks that its tools solve."""

    name: str
    server: StdioServer
    tools: Sequence[str]
    """Those that the model may use; none of them writes, so all rollouts share a server."""
    system: str
    scenarios: Sequence[Scenario]
    share: Callable[[ToolCall, Scenario], float] = arguments_share
    """How right a valid call is, up to 1."""
    most_result: int = 1_000
    """Characters."""

    def grade(self, outcome: Outcome) -> float:
        """A fifth for a call that fits its tool, up to two for how right the best one is, and
        two for the right answer, and nothing but it, after a right call."""
        scenario: Scenario = outcome.scenario
        shares = [self.share(call, scenario) for call in outcome.calls if call.valid]
        best = max(shares, default=0.0)
        solved = best == 1.0 and same(outcome.answer, scenario["demonstration"]["answer"])
        outcome.trajectory.metrics |= {
            "valid_call": bool(shares),
            "right_call": best == 1.0,
            "solved": solved,
        }
        return (bool(shares) + 2 * best + 2 * solved) / 5

    def agent(self, model: art.TrainableModel[Any], pool: ServerPool) -> MCPAgent:
        return MCPAgent(
            model,
            pool,
            reward=self.grade,
            limits=Limits(
                max_turns=3,
                max_tokens=64,
                max_calls_per_turn=2,
                max_result_characters=self.most_result,
            ),
            system=self.system,
            tools=self.tools,
        )


def same(answer: str, right: str) -> bool:
    return answer.strip(" .\n").lower() == right.strip(" .\n").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    root: Path = Path(".art")
    demonstrations: int = 40
    rl_steps: int = 6
    held_out: int = 24
    seed: int = 0


async def train(example: Example, settings: Settings) -> TrainReport:
    """Demonstrate, learn from that, then from rewards; held out before, between and after."""
    model = art.TrainableModel(name=example.name, project="mcp", base_model="smollm2-135m")
    held_out = example.scenarios[: settings.held_out]
    to_train = example.scenarios[settings.held_out :]
    async with (
        art.LocalBackend(settings.root) as backend,
        ServerPool(example.server, isolation="shared") as pool,
    ):
        await model.register(backend)
        agent = example.agent(model, pool)
        start = await warm_start(
            agent,
            backend.run_directory(model).path / "demonstrations.jsonl",
            to_train[: settings.demonstrations],
            min_reward=1.0,
            sft=SftConfig(
                epochs=2,
                batch_size=8,
                learning_rate=2e-3,
                seed=settings.seed,
                max_tokens_per_pass=2048,
            ),
        )
        config = art.TrainConfig(
            warm_start=start,
            steps=1 + settings.rl_steps,
            groups_per_step=4,
            rollouts_per_group=8,
            # Small, and reached slowly: Adam begins anew, and its first updates are the least sure.
            learning_rate=1e-4,
            warmup_updates=2,
            eval_every=1 + settings.rl_steps,
            seed=settings.seed,
            max_tokens_per_pass=2048,
        )
        return await art.train(model, agent, to_train, config, validation=held_out)


def parser(doc: str | None, command: str) -> argparse.ArgumentParser:
    defaults = Settings()
    made = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    made.add_argument("--server", default=command, help="how it is started (default: %(default)s)")
    made.add_argument("--root", type=Path, default=defaults.root)
    for name in ("demonstrations", "rl_steps", "held_out", "seed"):
        option = f"--{name.replace('_', '-')}"
        made.add_argument(option, type=int, default=getattr(defaults, name))
    return made


def run(example: Example, given: argparse.Namespace) -> None:
    """Train, and print what became of the held-out tasks."""
    names = ("root", "demonstrations", "rl_steps", "held_out", "seed")
    settings = Settings(**{name: getattr(given, name) for name in names})
    report = asyncio.run(train(example, settings))
    rows = {row.step: row.metrics for row in report.rows if row.split == "val"}
    print("held out             base    demonstrations    + rewards")
    for name in ("valid_call", "right_call", "solved", "reward"):
        before, shown, after = (rows[step][name] for step in (0, 1, report.steps))
        print(f"{name:<18}{before:>7.1%}{shown:>18.1%}{after:>13.1%}")
