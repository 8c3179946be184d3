"""The examples: what they ask is right by the real servers, and one trains for real."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from art_core.rollouts import TrainableModel
from art_core.trajectories import Trajectory
from examples import mcp_filesystem, mcp_git, mcp_shared, mcp_sqlite, mcp_time
from examples.mcp_shared import Example, Scenario, Settings
from integrations.mcp import ServerPool, scripted
from tests.integrations.mcp.scripted import Turn, task
from tests.integrations.mcp.test_real_servers import npm_server, old_server

Policy = TrainableModel[Any]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    for number in range(6):
        message = f"Commit the {number}th"
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", message], check=True)
    return tmp_path


async def plays_right(example: Example, policy: Policy, scenarios: Sequence[Scenario]) -> None:
    """Demonstrations earn all there is; so does a rollout that does the same, and one that
    answers otherwise, or without a call, earns less."""
    assert len({one["task"] for one in example.scenarios}) == len(example.scenarios)
    async with ServerPool(example.server, isolation="shared") as pool:
        agent = example.agent(policy, pool)
        for scenario in scenarios:
            shown = await agent.demonstrate(scenario, scripted)
            assert (shown.reward, shown.metrics["solved"]) == (1.0, True), shown.messages()
        wanted = scenarios[0]["demonstration"]
        (call,) = wanted["calls"]
        turns: list[Turn] = [[(call["name"], call["arguments"])]]

        async def rollout(*turns: Turn) -> Trajectory:
            return await agent.play({**scenarios[0], "task": task(*turns)})

        assert (await rollout(*turns, wanted["answer"])).reward == 1.0
        assert (await rollout(*turns, f"Not {wanted['answer']}")).reward == pytest.approx(0.6)
        guessed = await rollout(wanted["answer"])
        assert (guessed.reward, guessed.metrics["solved"]) == (0.0, False)


async def test_time(policy: Policy) -> None:
    example = mcp_time.example()
    await plays_right(example, policy, example.scenarios[:8])


async def test_git(policy: Policy, repository: Path) -> None:
    example = mcp_git.example(repository)
    assert len(example.scenarios) == 6
    await plays_right(example, policy, example.scenarios)


@pytest.mark.long
async def test_filesystem(policy: Policy) -> None:
    command = npm_server("filesystem").command
    example = mcp_filesystem.example(command=command)
    assert len(example.scenarios) > 100
    await plays_right(example, policy, example.scenarios[:20])


@pytest.mark.long
async def test_sqlite(policy: Policy, tmp_path: Path) -> None:
    example = mcp_sqlite.example(tmp_path / "shop.db", old_server().command)
    await plays_right(example, policy, example.scenarios[:20])
    scenario = example.scenarios[0]
    (shown,) = scenario["demonstration"]["calls"]
    query = shown["arguments"]["query"]
    otherwise = query.replace("WHERE name =", "WHERE name LIKE")
    several = query.partition(" WHERE")[0]
    async with ServerPool(example.server, isolation="shared") as pool:
        agent = example.agent(policy, pool)
        for text, right in ((otherwise, True), (several, False)):
            call: Turn = [("read_query", {"query": text})]
            played = await agent.play(
                {**scenario, "task": task(call, scenario["demonstration"]["answer"])}
            )
            assert played.metrics["right_call"] is right


@pytest.mark.parametrize(
    ("answer", "right"), [("21:00", True), (" 21:00.\n", True), ("It is 21:00", False), ("", False)]
)
def test_an_answer_is_right_alone(answer: str, right: bool) -> None:
    assert mcp_shared.same(answer, "21:00") is right


@pytest.mark.long
@pytest.mark.training
@pytest.mark.timeout(900)
async def test_the_time_example_trains(tmp_path: Path) -> None:
    settings = Settings(root=tmp_path, demonstrations=8, rl_steps=1, held_out=4)
    report = await mcp_shared.train(mcp_time.example(), settings)
    assert report.steps == 2
    solved = {row.step: row.metrics["solved"] for row in report.rows if row.split == "val"}
    assert set(solved) == {0, 1, 2}
