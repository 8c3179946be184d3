# pyright: reportUnknownVariableType=false
"""Warm starts on a real backend: the run, its checkpoints, and what comes after."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import art_core as art
from art_core.config import SftConfig, WarmStart
from art_core.errors import ConfigError, ExampleError, RunMismatchError
from art_core.rollouts.backend import SftProgress
from art_core.sft.demonstrations import best_of, write_examples
from tests.art_core.sft.conftest import conversation

SCRIPT = Path(__file__).with_name("learning_script.py")
QUICK = SftConfig(epochs=2, batch_size=4, learning_rate=5e-3)
TRAINING = [conversation(number) for number in range(8)]


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[art.LocalBackend]:
    async with art.LocalBackend(tmp_path / "runs", dtype="float32") as backend:
        yield backend


@pytest.fixture
async def model(backend: art.LocalBackend, tiny_model_folder: Path) -> art.TrainableModel[None]:
    model = art.TrainableModel(name="bot", project="tests", base_model=str(tiny_model_folder))
    await model.register(backend)
    return model


async def rollouts(
    model: art.TrainableModel[Any], count: int, question: str = "hello"
) -> art.TrajectoryGroup:
    """Short rollouts, rewarded by their number."""

    async def play(number: int) -> art.Trajectory:
        async with model.rollout(seed=number) as trajectory:
            await (
                model.openai_client()
                .with_options(base_url=trajectory.base_url, api_key=trajectory.api_key)
                .chat.completions.create(
                    model="m", messages=[{"role": "user", "content": question}], max_tokens=8
                )
            )
        trajectory.reward = float(number)
        return trajectory

    return art.TrajectoryGroup([await play(number) for number in range(count)])


async def test_learning_is_a_step_like_any_other(
    backend: art.LocalBackend, model: art.TrainableModel[None]
) -> None:
    told: list[SftProgress] = []
    validation = [conversation(number) for number in (20, 21)]
    result = await backend.train_sft(
        model, TRAINING, QUICK, validation=validation, on_progress=told.append
    )
    assert result.step == await model.get_step() == 1
    assert [(each.done, each.total) for each in told] == [(n, 4) for n in range(1, 5)]
    assert result.metrics["sft/last_loss"] < result.metrics["sft/first_loss"]
    assert result.metrics["sft/validation_loss"] < result.metrics["sft/validation_loss_before"]
    run = backend.run_directory(model)
    run.checkpoints.get(1).verify()
    assert sorted(p.name for p in run.checkpoints.get(1).path.iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors", "manifest.json",
        "optimizer.safetensors", "trainer.json",
    ]  # fmt: skip
    # What comes next starts with an optimizer of its own.
    state = json.loads((run.checkpoints.get(1).path / "trainer.json").read_text())
    assert state["updates"] == 0
    assert load_file(run.checkpoints.get(1).path / "optimizer.safetensors") == {}
    assert [p.name for p in (run.path / "sft").rglob("*")] == ["00001", "losses.jsonl"]
    group = await rollouts(model, 3)
    assert {version for t in group for h in t.histories for version in h.policy_versions} == {
        None,
        1,
    }
    after = await backend.train(model, [group], art.StepConfig())
    assert after.step == 2
    assert after.metrics["sampler_gap_max"] < 2e-4, "sampler and trainer have the same weights"
    again = await backend.train_sft(model, TRAINING, QUICK)
    assert again.step == 3
    assert [row.step for row in run.metrics.read() if row.split == "train"] == [1, 2, 3]


async def test_a_new_process_goes_on_from_its_checkpoint(
    tmp_path: Path, tiny_model_folder: Path
) -> None:
    for step in (1, 2):
        async with art.LocalBackend(tmp_path, dtype="float32") as backend:
            model = art.TrainableModel(name="b", project="p", base_model=str(tiny_model_folder))
            await model.register(backend)
            assert (await backend.train_sft(model, TRAINING, QUICK)).step == step
            leftover = backend.run_directory(model).path / "sft" / "00001" / "progress"
            assert not leftover.exists()
            leftover.mkdir()  # as a process leaves it that is killed right after its commit


async def test_the_policys_own_rollouts_are_learned_in_their_own_tokens(
    backend: art.LocalBackend, model: art.TrainableModel[None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="art_core.backends.trained")
    best = best_of([await rollouts(model, 3)])
    assert [trajectory.reward for trajectory in best] == [2.0]
    (history,) = best[0].histories
    result = await backend.train_sft(model, best, SftConfig(epochs=1))
    assert result.metrics["sft/tokens_trained"] == history.sampled_tokens
    assert "1 of them in the tokens that were sampled" in caplog.text
    # Corrected by hand, it no longer says what was sampled: it's rendered.
    corrected = best[0].model_copy(deep=True)
    corrected.histories[0].messages_and_choices[-1] = {"role": "assistant", "content": "Right."}
    caplog.clear()
    await backend.train_sft(model, [corrected], SftConfig(epochs=1))
    assert "were sampled" not in caplog.text


async def test_refusals_leave_the_run_as_it_was(
    backend: art.LocalBackend, model: art.TrainableModel[None], tmp_path: Path
) -> None:
    with pytest.raises(ExampleError, match="no message is the assistant's"):
        await backend.train_sft(model, [*TRAINING, {"messages": TRAINING[0]["messages"][:1]}])
    with pytest.raises(ExampleError, match="validation answers are learned in training"):
        await backend.train_sft(model, TRAINING, validation=TRAINING[:1])
    with pytest.raises(ExampleError, match="there is no file"):
        await backend.train_sft(model, tmp_path / "missing.jsonl")
    assert await model.get_step() == 0
    assert (await backend.train_sft(model, TRAINING, QUICK)).step == 1


async def test_a_warm_start_then_rewards(
    backend: art.LocalBackend, model: art.TrainableModel[None], tmp_path: Path
) -> None:
    path = tmp_path / "examples.jsonl"
    path.write_text("".join(json.dumps(example) + "\n" for example in TRAINING))
    played: list[int] = []

    async def play(scenario: str) -> art.Trajectory:
        played.append(await model.get_step())
        (trajectory,) = await rollouts(model, 1, scenario)
        trajectory.reward = float(len(played) % 3)
        return trajectory

    config = art.TrainConfig(
        warm_start=WarmStart(examples=path, sft=QUICK),
        steps=3, groups_per_step=1, rollouts_per_group=2, eval_every=10, concurrency=1,
    )  # fmt: skip
    report = await art.train(model, play, ["a", "b"], config, validation=["x"])
    assert report.steps == 3
    # Held out: before, after the examples, at the end. Two rollouts in each step by reward.
    assert played == [0, 1, 1, 1, 2, 2, 3]
    assert [row.step for row in report.rows if row.split == "val"] == [0, 1, 3]
    losses = {row.step: row.metrics for row in report.rows if row.split == "train"}
    assert "sft/last_loss" in losses[1]
    assert "sft/last_loss" not in losses[2]
    await art.train(model, play, ["a", "b"], config, validation=["x"])
    assert len(played) == 7, "a run that is over is over"
    other = config.model_copy(update={"warm_start": None})
    with pytest.raises(RunMismatchError, match="warm_start"):
        await art.train(model, play, ["a", "b"], other)


async def test_a_backend_that_cannot_learn_from_examples_is_named(tmp_path: Path) -> None:
    from tests.art_core.rollouts.scripted_backend import ScriptedBackend

    path = tmp_path / "examples.jsonl"
    path.write_text(json.dumps(TRAINING[0]) + "\n")

    async def play(scenario: str) -> art.Trajectory:
        return art.Trajectory()

    async with ScriptedBackend(tmp_path / "runs") as backend:
        model = art.TrainableModel(name="bot", project="p", base_model="tiny")
        await model.register(backend)
        config = art.TrainConfig(warm_start=WarmStart(examples=path))
        with pytest.raises(ConfigError, match="ScriptedBackend can't learn from examples"):
            await art.train(model, play, ["a"], config)


def start(root: Path, base: Path, *point: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(root), str(base), *point],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, tiny_model_folder: Path
) -> dict[str, Any]:
    done = start(tmp_path_factory.mktemp("undisturbed"), tiny_model_folder)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["updates"] == 6
    return result


SAVED = "after the progress is saved"
POINTS = [
    (SAVED, signal.SIGKILL, 2),
    pytest.param("right after the checkpoint", signal.SIGKILL, 0, marks=pytest.mark.long),
    pytest.param("before the progress is saved", signal.SIGKILL, 4, marks=pytest.mark.long),
    pytest.param("in an update", signal.SIGTERM, 4, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("point", "kind", "left"), POINTS)
def test_killed_it_ends_with_the_same_adapter(
    tmp_path: Path,
    tiny_model_folder: Path,
    undisturbed: dict[str, Any],
    point: str,
    kind: signal.Signals,
    left: int,
) -> None:
    killed = start(tmp_path, tiny_model_folder, point)
    assert killed.returncode == -kind, killed.stderr
    again = start(tmp_path, tiny_model_folder)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == {**undisturbed, "updates": left}


async def test_cancelled_it_keeps_its_progress_for_the_same_examples(
    backend: art.LocalBackend, model: art.TrainableModel[None]
) -> None:
    config = SftConfig(epochs=3, batch_size=4)
    told: list[int] = []

    def stop(progress: SftProgress) -> None:
        told.append(progress.done)
        if progress.done == 3:
            learning.cancel()

    learning = asyncio.create_task(backend.train_sft(model, TRAINING, config, on_progress=stop))
    with pytest.raises(asyncio.CancelledError):
        await learning
    assert await model.get_step() == 0
    assert told == [1, 2, 3]
    # The fourth was under way: it was seen to its end.
    with pytest.raises(RunMismatchError, match="has the progress of 4 updates"):
        await backend.train_sft(model, TRAINING[:4], config)
    told.clear()
    result = await backend.train_sft(
        model, TRAINING, config, on_progress=lambda progress: told.append(progress.done)
    )
    assert told == [5, 6]
    assert result.metrics["sft/updates"] == 6


def test_written_examples_are_read_back(tmp_path: Path) -> None:
    trajectory = art.Trajectory(
        messages_and_choices=TRAINING[0]["messages"], tools=TRAINING[0]["tools"], reward=1.0
    )
    silent = art.Trajectory(messages_and_choices=TRAINING[0]["messages"][:1])
    path = tmp_path / "made" / "examples.jsonl"
    assert write_examples(path, [trajectory, silent]) == 1
    assert [json.loads(line) for line in path.read_text().splitlines()] == [TRAINING[0]]
