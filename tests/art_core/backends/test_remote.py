"""`RemoteBackend` against a real ``art serve`` in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

import art_core as art
from art_core.errors import (
    AccessDeniedError,
    ConfigError,
    RewardError,
    RunMismatchError,
    ServerUnreachableError,
    TrajectoryError,
    UnknownCompletionError,
    UnknownModelError,
)
from art_core.runs import RunReader
from tests.art_core.server.agents import new_group, new_model, play
from tests.art_core.server.conftest import new_key
from tests.art_core.server.processes import ServerProcess

CONFIG = art.StepConfig(learning_rate=1e-2)


class Traffic:
    """All that a client sends to and gets from the server's training API."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bodies: list[str] = []
        send = httpx.AsyncClient.send
        traffic = self

        async def watched(self: httpx.AsyncClient, request: httpx.Request, **rest: Any) -> Any:
            answer = await send(self, request, **rest)
            if request.url.path.startswith("/art/") and not rest.get("stream"):
                traffic.bodies += [request.content.decode(), (await answer.aread()).decode()]
            return answer

        monkeypatch.setattr(httpx.AsyncClient, "send", watched)


async def test_a_whole_run_of_the_training_loop(
    backend: art.RemoteBackend, server: ServerProcess, tiny_model_folder: Path
) -> None:
    model = new_model(tiny_model_folder)
    await model.register(backend)
    config = art.TrainConfig(
        steps=2, groups_per_step=2, rollouts_per_group=2, eval_every=1, learning_rate=1e-2
    )

    async def agent(scenario: str) -> art.Trajectory:
        return await play(model, scenario)

    report = await art.train(model, agent, ["Oslo", "Rome"], config, validation=["Bern"])
    assert list(report.rewards("val")) == [0, 1, 2]
    there = RunReader(server.root / "shop" / model.name)
    assert there.step == 2
    there.checkpoints.get(2).verify()
    trained = [row.metrics for row in report.rows if row.split == "train"]
    assert all(metrics["tokens_trained"] > 0 for metrics in trained)
    assert all(metrics["sampler_gap_max"] < 2e-4 for metrics in trained)
    assert report.rewards("train") == {
        row.step: row.metrics["reward"] for row in there.metrics.read() if row.split == "train"
    }


async def test_only_ids_rewards_and_messages_travel(
    backend: art.RemoteBackend,
    server: ServerProcess,
    tiny_model_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traffic = Traffic(monkeypatch)
    model = new_model(tiny_model_folder)
    await model.register(backend)
    group = await new_group(model)
    await backend.train(model, [group], CONFIG)
    assert len(traffic.bodies) > 8
    assert not any("logprobs" in body or "token_ids" in body for body in traffic.bodies)
    for trajectory in group:
        (history,) = trajectory.histories
        assert (history.token_ids, len(history.completion_ids)) == ([], 2)
        assert [message["role"] for message in trajectory.messages()] == [
            "user",
            "assistant",
            "user",
            "assistant",
        ]
    ids = group.trajectories[0].histories[0].completion_ids
    records = await backend.completions(model, ids)
    assert [record.id for record in records] == ids
    assert sum(len(r.completion_token_ids) for r in records) == sum(
        h.sampled_tokens for h in group.trajectories[0].histories
    )
    (kept,) = RunReader(server.root / "shop" / model.name).trajectories.read("train", 1)
    for sent, stored in zip(group, kept, strict=True):
        assert (stored.reward, stored.metadata) == (sent.reward, sent.metadata)
        assert stored.histories[0].token_ids
        assert stored.messages() == sent.messages()


async def test_a_hand_built_trajectory(backend: art.RemoteBackend, tiny_model_folder: Path) -> None:
    model = new_model(tiny_model_folder)
    await model.register(backend)
    client = model.openai_client()

    async def one(reward: float) -> art.Trajectory:
        messages: list[Any] = [{"role": "user", "content": "Who are you?"}]
        done = await client.chat.completions.create(
            model=model.get_inference_name(), messages=messages, max_tokens=6
        )
        return art.Trajectory(messages_and_choices=[*messages, done.choices[0]], reward=reward)

    group = art.TrajectoryGroup([await one(0.0), await one(1.0)])
    result = await backend.train(model, [group], CONFIG)
    assert result.step == await model.get_step() == 1
    assert result.metrics["tokens_trained"] > 0
    strange = art.TrajectoryGroup([await one(0.0), await one(1.0)])
    choice: Any = strange.trajectories[0].messages_and_choices[-1]
    choice.completion_id = "made-up"
    with pytest.raises(UnknownCompletionError, match="made-up"):
        await backend.train(model, [strange], CONFIG)
    assert await model.get_step() == 1


async def test_the_same_groups_are_one_step_however_often_they_are_sent(
    backend: art.RemoteBackend, server: ServerProcess, tiny_model_folder: Path, tmp_path: Path
) -> None:
    model = new_model(tiny_model_folder)
    await model.register(backend)
    group = await new_group(model)
    first = await backend.train(model, [group], CONFIG)
    with pytest.raises(TrajectoryError, match="was trained on in step 1"):
        await backend.train(model, [group], CONFIG)
    # A client that lost all it had, the run directory too, and sends them again.
    again = new_model(tiny_model_folder, name=model.name)
    key = new_key(server, "shop")
    async with art.RemoteBackend(server.url, key, root=tmp_path / "another") as other:
        await again.register(other)
        run = other.run_directory(again)
        assert run.step == 1
        assert run.identity.run_id == backend.run_directory(model).identity.run_id
        with pytest.raises(TrajectoryError, match="was trained on in step 1"):
            await other.train(again, [group], CONFIG)
    assert await model.get_step() == first.step


async def test_what_can_not_be_trained_is_refused(
    backend: art.RemoteBackend, tiny_model_folder: Path
) -> None:
    model = new_model(tiny_model_folder)
    with pytest.raises(ConfigError, match="isn't registered"):
        await backend.get_step(model)
    await model.register(backend)
    with pytest.raises(ConfigError, match="no groups"):
        await backend.train(model, [], CONFIG)
    lonely = await new_group(model, rollouts=1)
    with pytest.raises(ConfigError, match="needs at least two"):
        await backend.train(model, [lonely], CONFIG)
    unscored = await new_group(model)
    unscored.trajectories[0].reward = None
    with pytest.raises(RewardError):
        await backend.train(model, [unscored], CONFIG)
    reference = art.StepConfig(kl_coefficient=0.1, kl_adapter=Path("/etc"))
    with pytest.raises(ConfigError, match="kl_adapter"):
        await backend.train(model, [await new_group(model)], reference)
    assert await model.get_step() == 0


async def test_registering_what_can_not_be_served(
    backend: art.RemoteBackend, server: ServerProcess, tiny_model_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnknownModelError, match="doesn't offer base model '/etc'"):
        await new_model("/etc").register(backend)
    with pytest.raises(AccessDeniedError, match="belongs to project 'shop'"):
        await new_model(tiny_model_folder, project="bank").register(backend)
    model = new_model(tiny_model_folder, name="shaped")
    await model.register(backend)
    other = art.TrainableModel(
        name="shaped",
        project="shop",
        base_model=str(tiny_model_folder),
        lora=art.LoraConfig(rank=4),
    )
    key = new_key(server, "shop")
    async with art.RemoteBackend(server.url, key, root=tmp_path / "another") as second:
        with pytest.raises(RunMismatchError, match="rank=4"):
            await other.register(second)


async def test_a_wrong_key_and_a_wrong_url(tiny_model_folder: Path, server: ServerProcess) -> None:
    async with art.RemoteBackend(server.url, "sk-art-made-up") as backend:
        with pytest.raises(AccessDeniedError, match="missing, wrong or revoked"):
            await new_model(tiny_model_folder).register(backend)
    async with art.RemoteBackend("http://127.0.0.1:1", "sk", patience=0.2) as backend:
        with pytest.raises(ServerUnreachableError, match="can't be reached"):
            await new_model(tiny_model_folder).register(backend)
    with pytest.raises(ConfigError, match="url is"):
        art.RemoteBackend("gpu-box:7999", "sk")


async def test_checkpoints_are_pruned_on_both_sides(
    backend: art.RemoteBackend, server: ServerProcess, tiny_model_folder: Path
) -> None:
    model = new_model(tiny_model_folder)
    await model.register(backend)
    for step in range(3):
        await backend.train(model, [await new_group(model, f"town {step}")], CONFIG)
    await model.delete_checkpoints()
    there = RunReader(server.root / "shop" / model.name).checkpoints.all()
    here = backend.run_directory(model).checkpoints.all()
    assert [c.step for c in there] == [c.step for c in here] == [3]


def test_a_client_imports_no_torch() -> None:
    code = """
import asyncio, sys
import art_core as art
async def main():
    backend = art.RemoteBackend("http://127.0.0.1:1", "sk", patience=0.1)
    model = art.TrainableModel(name="bot", project="shop", base_model="smollm2-135m")
    try:
        await model.register(backend)
    except art.ArtError as error:
        print(type(error).__name__)
    await backend.close()
asyncio.run(main())
heavy = {"torch", "transformers", "peft", "numpy", "safetensors"}
print(sorted(heavy & {name.split(".")[0] for name in sys.modules}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split("\n")[:2] == ["ServerUnreachableError", json.dumps([])]
