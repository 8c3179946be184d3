"""Agents and groups for the server's tests."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import uuid4

import openai

import art_core as art


def new_model(base_model: object, *, project: str = "shop", name: str | None = None) -> Any:
    """A model with a name of its own, unless it is given one."""
    name = name or f"bot-{uuid4().hex[:8]}"
    return art.TrainableModel(name=name, project=project, base_model=str(base_model))


async def play(model: art.TrainableModel[Any], scenario: str, turns: int = 2) -> art.Trajectory:
    """An agent with a client of its own; the reward depends on each character."""
    async with model.rollout(scenario) as trajectory:
        messages: list[Any] = []
        async with openai.AsyncOpenAI(
            base_url=trajectory.base_url, api_key=trajectory.api_key, max_retries=0
        ) as client:
            for turn in range(turns):
                messages.append({"role": "user", "content": f"{scenario}, turn {turn}"})
                done = await client.chat.completions.create(
                    model="gpt-4.1", messages=messages, max_tokens=6
                )
                messages.append({"role": "assistant", "content": done.choices[0].message.content})
    trajectory.reward = hashlib.sha256(str(messages).encode()).digest()[0] / 255
    return trajectory


async def new_group(
    model: art.TrainableModel[Any], scenario: str = "Oslo", rollouts: int = 2
) -> art.TrajectoryGroup:
    return art.TrajectoryGroup([await play(model, scenario) for _ in range(rollouts)])
