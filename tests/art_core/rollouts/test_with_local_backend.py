"""The loop over the real backend: engine, gateway, records, trainer, checkpoints."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import openai
import pytest

import art_core as art
from art_core.rollouts import TrainReport
from art_core.runs import RunReader

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

CONFIG = art.TrainConfig(
    steps=3,
    groups_per_step=2,
    rollouts_per_group=3,
    eval_every=2,
    learning_rate=1e-2,
    concurrency=3,
)
SCENARIOS = ["Oslo", "Rome", "Lima"]


class Agent:
    """An agent with a client of its own, and a reward that depends on each character."""

    def __init__(self, model: art.TrainableModel[None]) -> None:
        self._model = model
        self._client = openai.AsyncOpenAI()

    async def play(self, scenario: str) -> art.Trajectory:
        messages: list[ChatCompletionMessageParam] = []
        async with self._model.rollout(scenario) as trajectory:
            for turn in range(2):
                messages.append({"role": "user", "content": f"{scenario}, turn {turn}"})
                answer = await self._client.chat.completions.create(
                    model="gpt-4.1", messages=messages, max_tokens=6, temperature=0
                )
                text = answer.choices[0].message.content or ""
                messages.append({"role": "assistant", "content": text})
        digest = hashlib.sha256(str(messages).encode()).digest()
        trajectory.reward = digest[0] / 255
        return trajectory


async def start(root: Path, base_model: Path, *, stop_in_step: int | None = None) -> TrainReport:
    """One start of the run, cancelled once a group of that step is in the journal."""
    async with art.LocalBackend(root, dtype="float32", deterministic=True) as backend:
        model = art.TrainableModel(name="bot", project="tests", base_model=str(base_model))
        await model.register(backend)
        agent = Agent(model)
        task = asyncio.create_task(
            art.train(model, agent.play, SCENARIOS, CONFIG, validation=["Bern"])
        )
        run = backend.run_directory(model)
        # The disk tells nobody when it has a new file.
        while stop_in_step is not None and not run.journal.read(stop_in_step):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        if stop_in_step is not None:
            task.cancel()
        return await task


def adapter(root: Path) -> bytes:
    (run,) = (RunReader(path.parent) for path in root.glob("*/*/run.json"))
    latest = run.checkpoints.latest()
    assert latest is not None
    latest.verify()
    assert latest.step == 3
    return (latest.path / "adapter_model.safetensors").read_bytes()


@pytest.mark.long
async def test_a_run_that_was_stopped_ends_with_the_adapter_of_one_that_was_not(
    tmp_path: Path, tiny_model_folder: Path
) -> None:
    report = await start(tmp_path / "undisturbed", tiny_model_folder)
    assert list(report.rewards("val")) == [0, 2, 3]
    with pytest.raises(asyncio.CancelledError):
        await start(tmp_path / "stopped", tiny_model_folder, stop_in_step=2)
    again = await start(tmp_path / "stopped", tiny_model_folder)
    assert again.rewards("train") == report.rewards("train")
    assert again.rewards("val") == report.rewards("val")
    assert adapter(tmp_path / "stopped") == adapter(tmp_path / "undisturbed")


async def test_an_agents_temperature_of_zero_does_not_take_the_spread_from_its_groups(
    tmp_path: Path, tiny_model_folder: Path
) -> None:
    report = await start(tmp_path, tiny_model_folder)
    training = [row.metrics for row in report.rows if row.split == "train"]
    assert [metrics["groups_without_spread"] for metrics in training] == [0, 0, 0]
    assert all(metrics["tokens_trained"] > 0 for metrics in training)
    assert all(metrics["exceptions"] == 0 for metrics in training)
