"""`MCPAgent` and its pool: what a rollout does and leaves behind."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from art_core.errors import ConfigError, ScenarioError, ToolServerDiedError
from art_core.rollouts import TrainableModel
from art_core.trajectories import Trajectory
from integrations.mcp import Limits, MCPAgent, Outcome, ServerPool, StdioServer, Timeouts, trace
from integrations.mcp.pool import Workspace
from tests.integrations.mcp.conftest import BAD, MakeBad
from tests.integrations.mcp.scripted import Turn, task

Policy = TrainableModel[Any]
FILES = Path(__file__).with_name("file_server.py")
QUICK = Timeouts(probe=5)


async def play(policy: Policy, server: StdioServer, *turns: Turn, **limits: Any) -> Trajectory:
    async with ServerPool(server, timeouts=QUICK) as pool:
        return await MCPAgent(policy, pool, limits=Limits(**limits)).play(task(*turns))


async def test_a_rollout_calls_tools_and_answers(policy: Policy, time_server: StdioServer) -> None:
    arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    trajectory = await play(policy, time_server, [("convert_time", arguments)], "21:00")
    assert trajectory.metadata["answer"] == "21:00"
    (call,) = trajectory.metadata["mcp_calls"]  # type: ignore[misc]
    assert "T21:00:00+09:00" in call["result"]  # type: ignore[index]
    assert trajectory.metrics == {
        "turns": 2, "tool_calls": 1, "tool_errors": 0, "used_tools": True,
        "valid_tool_calls": 1.0, "server_deaths": 0,
    }  # fmt: skip
    # One conversation, whose second prompt begins with the first one's tokens.
    assert [len(history.completion_ids) for history in trajectory.histories] == [2]


async def test_calls_of_one_turn_run_at_once_and_are_bounded(
    policy: Policy, bad_server: MakeBad
) -> None:
    calls: Turn = [("count", {}) for _ in range(5)]
    trajectory = await play(policy, bad_server(), calls, "done", max_calls_per_turn=3)
    results = [m["content"] for m in trajectory.messages() if m["role"] == "tool"]
    assert sorted(map(str, results[:3])) == ["1", "2", "3"]
    assert results[3:] == ["Error: not called; at most 3 calls a turn"] * 2


async def test_too_many_turns_truncate(policy: Policy, bad_server: MakeBad) -> None:
    turns: list[Turn] = [[("works", {})]] * 5
    trajectory = await play(policy, bad_server(), *turns, max_turns=3)
    assert trajectory.status == "truncated"
    assert trajectory.metadata["stopped"] == "max_turns"
    assert trajectory.metrics["turns"] == 3


async def test_a_full_context_truncates(policy: Policy, bad_server: MakeBad) -> None:
    calls: Turn = [("huge", {})]
    trajectory = await play(policy, bad_server(), calls, "never", max_result_characters=500_000)
    assert trajectory.status == "truncated"
    assert trajectory.metadata["stopped"] == "context_length"


async def test_secrets_are_in_no_record(policy: Policy, bad_server: MakeBad) -> None:
    server = bad_server(env={"API_KEY": "sk-very-secret"})
    trajectory = await play(policy, server, [("env", {}), ("fails", {})], "done")
    assert "[secret API_KEY]" in trajectory.model_dump_json()
    assert "sk-very-secret" not in trajectory.model_dump_json()
    records = await policy.backend().completions(
        policy, [one for history in trajectory.histories for one in history.completion_ids]
    )
    assert records
    assert not any("sk-very-secret" in record.model_dump_json() for record in records)


@pytest.mark.parametrize("isolation", ["rollout", "pool", "shared"])
async def test_a_server_that_dies_is_restarted_and_the_rollout_played_again(
    policy: Policy, bad_server: MakeBad, tmp_path: Path, isolation: Any
) -> None:
    starts = tmp_path / "starts"
    server = bad_server(env={"STARTS": str(starts)})
    async with ServerPool(server, isolation=isolation, size=1, timeouts=QUICK) as pool:
        agent = MCPAgent(policy, pool)
        with pytest.raises(ToolServerDiedError):
            await agent.play(task([("dies", {})], "never"))
        assert starts.read_text().count("started") == 3
        trajectory = await agent.play(task([("works", {})], "fine"))
    assert trajectory.metadata["answer"] == "fine"
    assert trajectory.metrics["server_deaths"] == 0


async def test_a_death_is_counted(policy: Policy, tmp_path: Path) -> None:
    """The server dies once: the second try goes well."""
    flag = tmp_path / "died"
    server = StdioServer(command=sys.executable, args=(str(FILES), str(flag)))
    async with ServerPool(server, timeouts=QUICK) as pool:
        trajectory = await MCPAgent(policy, pool).play(task([("die_once", {})], "ok"))
    assert trajectory.metrics["server_deaths"] == 1
    assert trajectory.metadata["answer"] == "ok"
    assert len(trajectory.histories) == 1


async def test_isolation(policy: Policy, bad_server: MakeBad) -> None:
    async def counts(isolation: Any) -> list[str]:
        async with ServerPool(bad_server(), isolation=isolation, size=1, timeouts=QUICK) as pool:
            agent = MCPAgent(policy, pool)
            played = [await agent.play(task([("count", {})], "x")) for _ in range(2)]
        return [str(t.metadata["mcp_calls"][0]["result"]) for t in played]  # type: ignore[index, call-overload]

    assert await counts("rollout") == ["1", "1"]
    assert await counts("pool") == ["1", "2"]
    assert await counts("shared") == ["1", "2"]


async def test_rollouts_of_a_pool_never_share_a_server(policy: Policy, bad_server: MakeBad) -> None:
    inside: list[int] = []

    async def reset(workspace: Workspace) -> None:
        inside.append(id(workspace.connections[0]))

    async with ServerPool(
        bad_server(), isolation="pool", size=2, reset=reset, timeouts=QUICK
    ) as pool:
        agent = MCPAgent(policy, pool)
        turns = task([("count", {})], [("count", {})], "x")
        played = await asyncio.gather(*(agent.play(turns) for _ in range(6)))
    assert len(set(inside)) == 2
    assert len(inside) == 6
    for trajectory in played:  # counted on without others in between
        first, second = (int(c["result"]) for c in trajectory.metadata["mcp_calls"])  # type: ignore[union-attr, index, call-overload, arg-type]
        assert second == first + 1


async def test_a_sandbox_is_the_same_before_each_rollout(policy: Policy, tmp_path: Path) -> None:
    template = tmp_path / "files"
    (template / "sub").mkdir(parents=True)
    (template / "sub" / "a.txt").write_text("original")
    seen: list[Path] = []

    def grade(outcome: Outcome) -> float:
        assert outcome.sandbox is not None
        seen.append(outcome.sandbox)
        return float((outcome.sandbox / "sub" / "a.txt").read_text() == "changed")

    server = StdioServer(command=sys.executable, args=(str(FILES), "{sandbox}"))
    async with ServerPool(
        server, isolation="pool", size=1, sandbox=template, timeouts=QUICK
    ) as pool:
        agent = MCPAgent(policy, pool, reward=grade)
        change: Turn = [("write", {"path": "sub/a.txt", "text": "changed"})]
        read: Turn = [("read", {"path": "sub/a.txt"})]
        first = await agent.play(task(read, change, "x"))
        second = await agent.play(task(read, "x"))
    assert (first.reward, second.reward) == (1.0, 0.0)
    for trajectory in (first, second):
        assert trajectory.metadata["mcp_calls"][0]["result"] == "original"  # type: ignore[index, call-overload]
    assert (template / "sub" / "a.txt").read_text() == "original"
    assert not seen[0].exists()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"isolation": "shared", "reset": print}, "can't be reset"),
        ({"size": 0}, "size is 0"),
        ({"sandbox": "/no/such/folder"}, "no folder"),
    ],
)
async def test_what_doesnt_go_together(
    bad_server: MakeBad, policy: Policy, fields: dict[str, Any], said: str
) -> None:
    options: dict[str, Any] = {"isolation": "pool", **fields}
    with pytest.raises(ConfigError, match=said):
        async with ServerPool(bad_server(), **options) as pool:
            await MCPAgent(policy, pool).play("x")


@pytest.mark.parametrize("scenario", [{}, {"task": ""}, {"task": 3}, 7])
async def test_a_scenario_without_a_task(
    policy: Policy, bad_server: MakeBad, scenario: Any
) -> None:
    async with ServerPool(bad_server()) as pool:
        with pytest.raises(ScenarioError, match="task"):
            await MCPAgent(policy, pool).play(scenario)


async def test_trace_records_an_existing_agents_calls(policy: Policy) -> None:
    parameters = StdioServerParameters(
        command=sys.executable, args=[str(BAD)], env={**os.environ, "API_KEY": "sk-very-secret"}
    )
    async with Client(parameters) as client:
        same = trace(client, secrets={"API_KEY": "sk-very-secret"})
        assert trace(same) is client
        await client.call_tool("works", {})
        async with policy.rollout("anything") as trajectory:
            await client.call_tool("count", {})
            await client.call_tool("env", {})
            await client.call_tool("fails", {"a": 1})
            with pytest.raises(Exception, match="bad arguments"):
                await client.call_tool("refuses")
    calls: Any = trajectory.metadata["mcp_calls"]
    assert [(c["name"], c["is_error"]) for c in calls] == [
        ("count", False), ("env", False), ("fails", True), ("refuses", True),
    ]  # fmt: skip
    assert calls[2]["arguments"] == {"a": 1}
    assert calls[3]["error"] == "MCPError: bad arguments"
    assert "sk-very-secret" not in str(calls)
    assert trajectory.metrics == {"tool_calls": 4, "tool_errors": 2}
