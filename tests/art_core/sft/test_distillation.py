# pyright: reportUnknownMemberType=false
"""Demonstrations, and a teacher that marks what the policy has sampled."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import art_core as art
from art_core.config import LoraConfig, SftConfig
from art_core.errors import (
    ConfigError,
    ExampleError,
    RewardError,
    TooManyFailuresError,
    TrajectoryError,
)
from art_core.sft.demonstrations import best_of, demonstrate, demonstrated
from tests.art_core.sft.test_backend import rollouts


def played(reward: float | None, **fields: Any) -> art.Trajectory:
    messages: list[Any] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": f"worth {reward}"},
    ]
    return art.Trajectory(messages_and_choices=messages, reward=reward, **fields)


def test_best_of() -> None:
    failed = art.Trajectory(status=art.TrajectoryStatus.FAILED, error="boom")
    groups = [
        art.TrajectoryGroup([played(0.1), played(0.9), failed, played(0.5)]),
        art.TrajectoryGroup([played(0.2), played(0.3)]),
    ]
    assert [t.reward for t in best_of(groups)] == [0.9, 0.3]
    assert [t.reward for t in best_of(groups, keep=2)] == [0.9, 0.5, 0.3, 0.2]
    assert [t.reward for t in best_of(groups, keep=2, min_reward=0.3)] == [0.9, 0.5, 0.3]
    tied = art.TrajectoryGroup([played(1.0, metadata={"n": n}) for n in range(3)])
    assert best_of([tied])[0].metadata == {"n": 0}
    with pytest.raises(RewardError, match="has no reward"):
        best_of([art.TrajectoryGroup([played(1.0), played(None)])])
    with pytest.raises(ConfigError, match="keep is 0"):
        best_of(groups, keep=0)


async def test_demonstrate_plays_and_keeps_the_best() -> None:
    counts: dict[str, int] = {}

    async def play(scenario: str) -> art.Trajectory:
        counts[scenario] = counts.get(scenario, 0) + 1
        if scenario == "fails once" and counts[scenario] == 1:
            raise RuntimeError("no luck")
        return played(counts[scenario] / 3)

    best = await demonstrate(play, ["a", "b", "fails once"], attempts=3, min_reward=0.9)
    assert [t.reward for t in best] == [1.0, 1.0, 1.0]
    with pytest.raises(ExampleError, match="none of 1 scenarios was played with a reward of 9"):
        await demonstrate(play, ["a"], min_reward=9)


async def test_too_many_failures_stop_it() -> None:
    async def broken(scenario: int) -> art.Trajectory:
        raise RuntimeError(f"no luck with {scenario}")

    with pytest.raises(TooManyFailuresError):
        await demonstrate(broken, [1, 2])


async def test_demonstrations_are_made_once(tmp_path: Path) -> None:
    plays: list[int] = []

    async def play(scenario: int) -> art.Trajectory:
        plays.append(scenario)
        return played(float(scenario))

    path = tmp_path / "demonstrations.jsonl"
    sft = SftConfig(epochs=1)
    first = await demonstrated(path, play, [0, 1, 2], min_reward=1.0, sft=sft)
    assert (first.examples, first.sft) == (path, sft)
    assert len(path.read_text().splitlines()) == 2
    assert await demonstrated(path, play, [0, 1, 2], min_reward=1.0, sft=sft) == first
    assert plays == [0, 1, 2]
    assert json.loads(path.read_text().splitlines()[0])["messages"][1]["content"] == "worth 1.0"


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[art.LocalBackend]:
    async with art.LocalBackend(tmp_path / "runs", dtype="float32") as backend:
        yield backend


async def test_the_policy_is_drawn_to_its_teacher(
    backend: art.LocalBackend, tiny_model_folder: Path
) -> None:
    """The teacher is the same base after SFT; the student learns from its marks alone."""
    base = str(tiny_model_folder)
    teacher = art.TrainableModel(name="teacher", project="p", base_model=base)
    student = art.TrainableModel(name="student", project="p", base_model=base)
    for model in (teacher, student):
        await model.register(backend)
    example = {
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "the the the the the the"},
        ]
    }
    await backend.train_sft(
        teacher, [example], SftConfig(epochs=10, learning_rate=2e-2, schedule="constant")
    )
    adapter = backend.run_directory(teacher).checkpoints.get(1).path
    config = art.StepConfig(learning_rate=2e-2)
    apart: list[float] = []
    groups = [await rollouts(student, 8)]
    for step in range(1, 9):
        result = await backend.distil(student, groups[-1:], base, config, teacher_adapter=adapter)
        groups.append(await rollouts(student, 8))
        assert result.step == step
        apart.append(result.metrics["distil/reverse_kl"])
    assert apart[0] > 0
    assert apart[-1] < 0.5 * apart[0]
    with pytest.raises(TrajectoryError, match="was trained on"):
        await backend.distil(student, groups[:1], base, config)


async def test_the_base_itself_has_nothing_to_teach_the_base(
    backend: art.LocalBackend, tiny_model_folder: Path
) -> None:
    model = art.TrainableModel(name="m", project="p", base_model=str(tiny_model_folder))
    await model.register(backend)
    group = await rollouts(model, 2)
    result = await backend.distil(model, [group], str(tiny_model_folder))
    assert abs(result.metrics["distil/reverse_kl"]) < 2e-4, "rounding"
    assert result.metrics["tokens_trained"] == sum(
        history.sampled_tokens for t in group for history in t.histories
    )


async def test_what_cannot_teach_is_refused(
    backend: art.LocalBackend, tiny_model_folder: Path, tmp_path: Path
) -> None:
    base = str(tiny_model_folder)
    model = art.TrainableModel(name="m", project="p", base_model=base, lora=LoraConfig(rank=2))
    await model.register(backend)
    group = await rollouts(model, 2)
    with pytest.raises(ConfigError, match="the teacher's adapter is"):
        await backend.distil(model, [group], base, teacher_adapter=tmp_path)
    with pytest.raises(ConfigError, match="has another vocabulary than the policy"):
        await backend.distil(model, [group], str(other_model(tmp_path / "other")))
    unrecorded = art.TrajectoryGroup([played(1.0)])
    with pytest.raises(TrajectoryError, match="no sampled tokens"):
        await backend.distil(model, [unrecorded], base)
    assert await model.get_step() == 0


def other_model(folder: Path) -> Path:
    """A model that speaks only of a and b."""
    backend = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<eos>": 2}, unk_token="a"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>")
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=3, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, eos_token_id=2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
