"""Nothing waits without saying why."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from art_core.cli.main import main
from art_core.config import TrainConfig
from art_core.errors import RolloutTimeoutError, RunError
from art_core.rollouts import TrainableModel, train
from art_core.rollouts.waiting import ask
from art_core.runs import RunReader
from art_core.trajectories import Trajectory, TrajectoryGroup
from tests.art_core.rollouts.scripted_backend import ScriptedBackend

CONFIG = TrainConfig(steps=1, groups_per_step=1, rollouts_per_group=2)


@pytest.fixture
async def model(tmp_path: Path) -> AsyncGenerator[TrainableModel[Any]]:
    async with ScriptedBackend(tmp_path) as backend:
        model = TrainableModel(name="bot", project="shop", base_model="tiny")
        await model.register(backend)
        yield model


def agent(
    model: TrainableModel[Any], before_the_end: Callable[[], Awaitable[object]]
) -> Callable[[str], Awaitable[Trajectory]]:
    async def play(scenario: str) -> Trajectory:
        async with model.rollout(scenario) as trajectory, httpx.AsyncClient() as client:
            body = {"model": "bot", "messages": [{"role": "user", "content": scenario}]}
            await client.post(f"{trajectory.base_url}/chat/completions", json=body)
            await before_the_end()
        trajectory.reward = float(len(str(trajectory.rollout_id)) % 2)
        return trajectory

    return play


def reader(model: TrainableModel[Any]) -> RunReader:
    return RunReader(model.backend().run_directory(model).path)


async def under_way(run: RunReader, count: int) -> dict[str, Any]:
    """The run's answer once so much is under way."""
    while True:
        answer = await asyncio.to_thread(ask, run)
        if len(answer["waiting"]) >= count:
            return answer


async def test_each_rollout_says_where_it_waits(
    model: TrainableModel[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go_on = asyncio.Event()

    async def slow_tool() -> None:
        await go_on.wait()

    run = asyncio.create_task(train(model, agent(model, slow_tool), ["a"], CONFIG))
    answer = await under_way(reader(model), 2)
    assert {d["what"] for d in answer["waiting"]} == {
        f"step 1 scenario 0 rollout {number}" for number in (0, 1)
    }
    while "slow_tool" not in answer["waiting"][0]["where"]:
        answer = await under_way(reader(model), 2)
    assert answer["waiting"][0]["where"].startswith("test_why.py:")
    assert any("MainThread" in name for name in answer["threads"])
    with pytest.raises(SystemExit):
        await asyncio.to_thread(main, ["runs", "why", "bot", "--root", str(tmp_path)])
    assert "step 1 scenario 0 rollout 1" in capsys.readouterr().out
    go_on.set()
    assert (await run).steps == 1
    assert not list(reader(model).path.glob("why*"))


async def test_a_blocked_event_loop_is_named(model: TrainableModel[Any]) -> None:
    async def blocking_tool() -> None:
        time.sleep(2)  # noqa: ASYNC251 - what users do

    answers: list[dict[str, Any]] = []
    run = reader(model)

    def look() -> None:
        while not answers or answers[-1]["loop_blocked_seconds"] < 1:
            answers.append(ask(run))

    looking = threading.Timer(0.5, look)
    looking.start()
    await train(model, agent(model, blocking_tool), ["a"], CONFIG)
    await asyncio.to_thread(looking.join)
    (main_thread,) = [s for name, s in answers[-1]["threads"].items() if "MainThread" in name]
    assert "time.sleep(2)" in main_thread


async def test_a_scorer_that_hangs_is_stopped_and_named(model: TrainableModel[Any]) -> None:
    async def judge(group: TrajectoryGroup) -> TrajectoryGroup | None:
        await asyncio.Event().wait()
        return group

    config = CONFIG.model_copy(update={"rollout_timeout": 0.5})
    played = agent(model, lambda: asyncio.sleep(0))
    with pytest.raises(RolloutTimeoutError, match=r"scoring group .* took more .* in .*judge"):
        await train(model, played, ["a"], config, reward=judge)


async def test_a_run_that_is_not_in_a_loop_says_so(
    model: TrainableModel[Any], tmp_path: Path
) -> None:
    run = reader(model)
    with pytest.raises(RunError, match="doesn't answer within"):
        await asyncio.to_thread(ask, run, 0.3)
    assert not list(run.path.glob("why*"))
    owner = json.loads((run.path / "owner.json").read_text())
    (run.path / "owner.json").write_text(json.dumps({**owner, "pid": 2**22 + 1}))
    with pytest.raises(RunError, match="isn't running on this machine"):
        ask(run)
