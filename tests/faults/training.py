"""The run that the faults are put into: small, real in every part, and deterministic.

A random two-layer model behind the real engine, gateway, record store, trainer and
loop. What the agent does, and its reward, follow from what was sampled alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import openai

import art_core as art
from tests.faults import points

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

    from art_core.rollouts import TrainReport

STEPS = 4
CONFIG = art.TrainConfig(
    steps=STEPS,
    groups_per_step=2,
    rollouts_per_group=2,
    eval_every=2,
    learning_rate=1e-2,
    concurrency=2,
    keep_checkpoints=2,
    seed=5,
)
SCENARIOS = ["Oslo", "Rome", "Lima"]
HELD_OUT = ["Bern"]


class Agent:
    """Two turns, and a reward that depends on each sampled character."""

    def __init__(self, model: art.TrainableModel[None]) -> None:
        self._model = model
        self._client = openai.AsyncOpenAI(api_key="none")

    async def play(self, scenario: str) -> art.Trajectory:
        messages: list[ChatCompletionMessageParam] = []
        async with self._model.rollout(scenario) as trajectory:
            for turn in range(2):
                messages.append({"role": "user", "content": f"{scenario}, turn {turn}"})
                answer = await self._client.chat.completions.create(
                    model="gpt-4.1", messages=messages, max_tokens=4
                )
                text = answer.choices[0].message.content or ""
                messages.append({"role": "assistant", "content": text})
                points.reached("held-out" if scenario in HELD_OUT else "rollout")
        trajectory.reward = hashlib.sha256(str(messages).encode()).digest()[0] / 255
        points.reached("reward")
        return trajectory


async def train(root: Path, base_model: Path) -> TrainReport:
    """Begin the run, or go on with it."""
    async with art.LocalBackend(root, dtype="float32", deterministic=True) as backend:
        model = art.TrainableModel(name="bot", project="faults", base_model=str(base_model))
        await model.register(backend)
        agent = Agent(model)
        return await art.train(model, agent.play, SCENARIOS, CONFIG, validation=HELD_OUT)


def start(root: Path, base_model: Path, log: Path, point: str | None, number: int) -> None:
    """The whole of a process: one start of the run, its output in ``log``."""
    import torch

    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    torch.set_num_threads(1)
    if point is not None:
        points.arm(point, number)
    asyncio.run(train(root, base_model))
