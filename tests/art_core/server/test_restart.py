"""A server that is killed or stopped while it trains: nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import art_core as art
from art_core.runs import RunReader
from art_core.trajectories import TrajectoryGroup
from tests.art_core.server.agents import new_group, new_model
from tests.art_core.server.conftest import new_key
from tests.art_core.server.processes import ServerProcess

_HANG = """
import sys, time
import {module} as module
original = module.{name}
def hang(*arguments, **rest):
    {before}
    print("it hangs", file=sys.stderr, flush=True)
    time.sleep(600)
module.{name} = hang
from art_core.cli.main import main
main()
"""
BEFORE_THE_RENAME = _HANG.format(
    module="art_core.grpo.trainer",
    name="GRPOTrainer.save",
    before="original(*arguments, **rest)",
)
"""The gradient is applied and the checkpoint written, but it has no name yet."""
AFTER_THE_RENAME = _HANG.format(module="art_core.server.jobs", name="JobStore.done", before="pass")
"""The step is committed, but the queue doesn't know."""


@pytest.fixture
def killable(tmp_path: Path, tiny_model_folder: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "server", tiny_model_folder)
    yield process
    process.stop()


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(BEFORE_THE_RENAME, id="before"),
        pytest.param(AFTER_THE_RENAME, id="after", marks=pytest.mark.long),
    ],
)
async def test_killed_in_the_middle_of_a_step(
    killable: ServerProcess, tiny_model_folder: Path, tmp_path: Path, code: str
) -> None:
    await asyncio.to_thread(killable.start, code=code)
    key = new_key(killable, "shop")
    async with art.RemoteBackend(killable.url, key, root=tmp_path / "client") as backend:
        model = new_model(tiny_model_folder)
        await model.register(backend)
        group = await new_group(model)
        training = asyncio.create_task(backend.train(model, [group], art.StepConfig()))
        await asyncio.to_thread(killable.wait_for, "it hangs")
        killable.kill()
        await asyncio.sleep(0.3)
        assert not training.done()
        await asyncio.to_thread(killable.start)
        result = await training
        assert result.step == await model.get_step() == 1
        assert result.metrics["tokens_trained"] > 0
        second = await backend.train(model, [await new_group(model)], art.StepConfig())
        assert second.step == 2
    run = RunReader(killable.root / "shop" / model.name)
    assert [each.step for each in run.checkpoints.all()] == [1, 2]
    assert run.checkpoints.get(1).manifest.group_ids == [group.id]
    assert [row.step for row in run.metrics.read()] == [1, 2]


@pytest.mark.long
async def test_a_stopped_server_finishes_its_step_and_keeps_the_queue(
    killable: ServerProcess, tiny_model_folder: Path, tmp_path: Path
) -> None:
    slow = _HANG.format(
        module="art_core.grpo.trainer",
        name="GRPOTrainer.save",
        before="original(*arguments, **rest)",
    ).replace("time.sleep(600)", "time.sleep(1.5)")
    await asyncio.to_thread(killable.start, code=slow)
    key = new_key(killable, "shop")
    async with art.RemoteBackend(killable.url, key, root=tmp_path / "client") as backend:
        models = [new_model(tiny_model_folder) for _ in range(2)]
        for model in models:
            await model.register(backend)
        groups: list[TrajectoryGroup] = [await new_group(model) for model in models]
        training = [
            asyncio.create_task(backend.train(model, [group], art.StepConfig()))
            for model, group in zip(models, groups, strict=True)
        ]
        await asyncio.to_thread(killable.wait_for, "it hangs")
        await asyncio.sleep(0.2)
        assert await asyncio.to_thread(killable.stop) == 0
        steps = [RunReader(killable.root / "shop" / model.name).step for model in models]
        assert sorted(steps) == [0, 1]
        await asyncio.to_thread(killable.start)
        assert [result.step for result in await asyncio.gather(*training)] == [1, 1]


@pytest.mark.long
async def test_models_are_served_again_after_a_restart(
    killable: ServerProcess, tiny_model_folder: Path, tmp_path: Path
) -> None:
    await asyncio.to_thread(killable.start)
    key = new_key(killable, "shop")
    async with art.RemoteBackend(killable.url, key, root=tmp_path / "client") as backend:
        model = new_model(tiny_model_folder)
        await model.register(backend)
        await backend.train(model, [await new_group(model)], art.StepConfig())
        ticket = await backend.open_rollout(model, mode="train")
        killable.kill()
        await asyncio.to_thread(killable.start)
        closed = await backend.close_rollout(model, ticket.rollout_id)
        assert closed.histories == []
        async with httpx.AsyncClient(base_url=killable.url, trust_env=False) as http:
            answer = await http.get("/v1/models", headers={"authorization": f"Bearer {key}"})
        assert f"{model.name}@1" in {each["id"] for each in answer.json()["data"]}
