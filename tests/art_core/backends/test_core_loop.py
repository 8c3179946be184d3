"""The whole path, real parts only: agent → gateway → engine → records → trainer → engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

import art_core as art
from art_core.errors import ConfigError, RunLockedError, RunMismatchError, UnknownCompletionError
from art_core.rollouts.prepare import prepare_groups

# fp32 on both sides: what separates the sampler's logprobs from the trainer's is rounding.
ROUNDING = 2e-4


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[art.LocalBackend]:
    async with art.LocalBackend(tmp_path / "runs", dtype="float32") as backend:
        yield backend


@pytest.fixture
async def model(backend: art.LocalBackend, tiny_model_folder: Path) -> art.TrainableModel[None]:
    model = art.TrainableModel(name="bot", project="tests", base_model=str(tiny_model_folder))
    await model.register(backend)
    return model


def client_of(trajectory: art.Trajectory) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=trajectory.base_url, api_key=trajectory.api_key)


async def say(client: openai.AsyncOpenAI, messages: list[Any], max_tokens: int = 6) -> Any:
    """One turn, appended to ``messages`` as agents do."""
    done = await client.chat.completions.create(
        model="gpt-4.1", messages=messages, max_tokens=max_tokens
    )
    choice = done.choices[0]
    messages.append({"role": "assistant", "content": choice.message.content})
    return choice


async def two_interleaved_subagents(
    model: art.TrainableModel[None], reward: float
) -> art.Trajectory:
    async with model.rollout() as trajectory, client_of(trajectory) as client:
        planner: list[Any] = [{"role": "user", "content": "Plan a trip to Oslo."}]
        writer: list[Any] = [{"role": "user", "content": "Write about Oslo."}]
        for turn in range(3):
            await say(client, planner)
            await say(client, writer)
            planner.append({"role": "user", "content": f"Refine it, {turn}."})
            writer.append({"role": "user", "content": f"Shorter, {turn}."})
    trajectory.reward = reward
    return trajectory


async def hand_built(model: art.TrainableModel[None], reward: float) -> art.Trajectory:
    client = model.openai_client()
    messages: list[Any] = [{"role": "system", "content": "Be brief."}]
    for question in ("Who are you?", "And who am I?"):
        messages.append({"role": "user", "content": question})
        done = await client.chat.completions.create(
            model=model.get_inference_name(), messages=_as_params(messages), max_tokens=6
        )
        messages.append(done.choices[0])
    return art.Trajectory(messages_and_choices=messages, reward=reward)


def _as_params(items: list[Any]) -> list[Any]:
    return [item if isinstance(item, dict) else item.message.model_dump() for item in items]


async def test_interleaved_subagents_train_on_exactly_the_sampled_tokens(
    backend: art.LocalBackend, model: art.TrainableModel[None]
) -> None:
    group = art.TrajectoryGroup(
        [await two_interleaved_subagents(model, reward) for reward in (0.0, 1.0)]
    )
    for trajectory in group:
        assert len(trajectory.histories) == 2
        assert [len(history.completion_ids) for history in trajectory.histories] == [3, 3]
        records = await backend.completions(
            model, [i for history in trajectory.histories for i in history.completion_ids]
        )
        sampled = [
            (token, logprob)
            for record in records
            for token, logprob in zip(record.completion_token_ids, record.logprobs, strict=True)
        ]
        trained = [
            (token, logprob)
            for history in trajectory.histories
            for token, logprob, on in zip(
                history.token_ids, history.logprobs, history.loss_mask, strict=True
            )
            if on
        ]
        assert sorted(trained) == sorted(sampled)
    result = await backend.train(model, [group], art.StepConfig())
    total = sum(history.sampled_tokens for t in group for history in t.histories)
    assert result.metrics["tokens_trained"] == total
    assert result.metrics["sampler_gap_max"] < ROUNDING
    assert result.step == await model.get_step() == 1


async def test_a_hand_built_trajectory_trains_on_exactly_the_sampled_tokens(
    backend: art.LocalBackend, model: art.TrainableModel[None]
) -> None:
    group = art.TrajectoryGroup([await hand_built(model, reward) for reward in (0.0, 1.0, 0.5)])
    result = await backend.train(model, [group], art.StepConfig())
    records = [
        record
        for trajectory in group
        for record in await backend.completions(
            model, [i for history in trajectory.histories for i in history.completion_ids]
        )
    ]
    assert len(records) == 6
    assert result.metrics["tokens_trained"] == sum(len(r.completion_token_ids) for r in records)
    assert result.metrics["sampler_gap_max"] < ROUNDING


async def test_what_failed_is_kept_and_not_trained_on(
    backend: art.LocalBackend, model: art.TrainableModel[None]
) -> None:
    trajectories = [await hand_built(model, reward) for reward in (0.0, 1.0)]
    async with model.rollout() as failing, client_of(failing) as client:
        await say(client, [{"role": "user", "content": "Which page?"}])
    failing.status = art.TrajectoryStatus.FAILED
    group = art.TrajectoryGroup([*trajectories, failing])
    result = await backend.train(model, [group], art.StepConfig())
    (kept,) = backend.run_directory(model).trajectories.read("train", result.step)
    assert kept == group
    (failed,) = [t for t in kept if t.status is art.TrajectoryStatus.FAILED]
    assert failed.histories[0].sampled_tokens > 0
    sampled = sum(history.sampled_tokens for t in kept for history in t.histories)
    assert result.metrics["tokens_trained"] < sampled


async def test_a_choice_from_elsewhere_is_refused(
    backend: art.LocalBackend, model: art.TrainableModel[None]
) -> None:
    group = art.TrajectoryGroup([await hand_built(model, reward) for reward in (0.0, 1.0)])
    choice: Any = group.trajectories[0].messages_and_choices[-1]
    choice.completion_id = "made-up"
    with pytest.raises(UnknownCompletionError, match="made-up"):
        await backend.train(model, [group], art.StepConfig())
    assert await model.get_step() == 0


async def test_the_new_adapter_is_served_and_an_open_rollout_keeps_the_old_one(
    backend: art.LocalBackend, model: art.TrainableModel[None]
) -> None:
    group = art.TrajectoryGroup([await hand_built(model, reward) for reward in (0.0, 1.0)])
    async with model.rollout() as before, client_of(before) as client:
        await say(client, [{"role": "user", "content": "one"}])
        await backend.train(model, [group], art.StepConfig(learning_rate=1e-2))
        await say(client, [{"role": "user", "content": "two"}])
    async with model.rollout() as after, client_of(after) as client:
        await say(client, [{"role": "user", "content": "three"}])
    assert versions(before) == {0}
    assert versions(after) == {1}


def versions(trajectory: art.Trajectory) -> set[int]:
    return {
        version
        for history in trajectory.histories
        for version in history.policy_versions
        if version is not None
    }


async def test_a_run_goes_on_where_it_was(tmp_path: Path, tiny_model_folder: Path) -> None:
    def make() -> art.TrainableModel[None]:
        return art.TrainableModel(name="bot", project="tests", base_model=str(tiny_model_folder))

    async with art.LocalBackend(tmp_path, dtype="float32") as backend:
        model = make()
        await model.register(backend)
        group = art.TrajectoryGroup([await hand_built(model, reward) for reward in (0.0, 1.0)])
        await backend.train(model, [group], art.StepConfig(learning_rate=1e-2))
    async with art.LocalBackend(tmp_path, dtype="float32") as backend:
        model = make()
        await model.register(backend)
        assert await model.get_step() == 1
        async with model.rollout() as trajectory, client_of(trajectory) as client:
            await say(client, [{"role": "user", "content": "again"}])
        assert versions(trajectory) == {1}
        with pytest.raises(art.ArtError, match="was trained on in step 1"):
            await prepare_groups(backend, model, [group])
        again = art.TrajectoryGroup([await hand_built(model, reward) for reward in (0.0, 1.0)])
        result = await backend.train(model, [again], art.StepConfig(learning_rate=1e-2))
        assert result.step == 2
        assert result.metrics["sampler_gap_max"] < ROUNDING


async def test_two_backends_on_one_run_directory(
    backend: art.LocalBackend, model: art.TrainableModel[None], tiny_model_folder: Path
) -> None:
    second = art.TrainableModel(name="bot", project="tests", base_model=str(tiny_model_folder))
    async with art.LocalBackend(backend.root, dtype="float32") as other:
        with pytest.raises(RunLockedError):
            await second.register(other)
    assert model.inference_base_url is not None


async def test_a_run_of_another_adapter_shape_is_refused(
    tmp_path: Path, tiny_model_folder: Path
) -> None:
    def make(rank: int) -> art.TrainableModel[None]:
        return art.TrainableModel(
            name="bot",
            project="tests",
            base_model=str(tiny_model_folder),
            lora=art.LoraConfig(rank=rank),
        )

    async with art.LocalBackend(tmp_path) as backend:
        await make(4).register(backend)
    async with art.LocalBackend(tmp_path) as backend:
        with pytest.raises(RunMismatchError, match="rank"):
            await make(8).register(backend)
    async with art.LocalBackend(tmp_path, fresh=True) as backend:
        await make(8).register(backend)
    assert len(list((tmp_path / ".archive" / "tests").iterdir())) == 1


async def test_an_unregistered_model_is_named(
    backend: art.LocalBackend, model: art.TrainableModel[None]
) -> None:
    stranger = art.TrainableModel(name="other", project="tests", base_model="smollm2-135m")
    with pytest.raises(ConfigError, match="'other' of project 'tests' isn't registered"):
        await backend.get_step(stranger)
    with pytest.raises(ConfigError, match="registered already"):
        await backend.register(model)


async def test_calls_at_once_from_many_rollouts_are_never_crossed(
    backend: art.LocalBackend, model: art.TrainableModel[None]
) -> None:
    async def play(number: int) -> art.Trajectory:
        async with model.rollout() as trajectory, client_of(trajectory) as client:
            messages: list[Any] = [{"role": "user", "content": f"I am number {number}."}]
            for _ in range(2):
                await say(client, messages)
                messages.append({"role": "user", "content": "Go on."})
        return trajectory

    trajectories = await asyncio.gather(*(play(number) for number in range(32)))
    for number, trajectory in enumerate(trajectories):
        (history,) = trajectory.histories
        assert len(history.completion_ids) == 2
        assert f"I am number {number}." in str(history.messages_and_choices[0])
