"""Demonstrations: played on a real server, by a script or by a model behind a URL."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from art_core.errors import ArtError, ExampleError, ScenarioError
from art_core.rollouts import TrainableModel
from art_core.trajectories import Message
from integrations.mcp import (
    Limits,
    MCPAgent,
    Outcome,
    ServerPool,
    StdioServer,
    Teacher,
    scripted,
    warm_start,
)
from tests.integrations.mcp.scripted import task

Policy = TrainableModel[Any]
TOKYO = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
SEOUL = {**TOKYO, "target_timezone": "Asia/Seoul"}


def scenario(arguments: dict[str, str], answer: str) -> dict[str, Any]:
    call = {"name": "convert_time", "arguments": arguments}
    demonstration = {"calls": [call], "answer": answer}
    return {"task": f"Noon in {arguments}?", "demonstration": demonstration}


def grade(outcome: Outcome) -> float:
    return float(outcome.answer == "21:00" and not outcome.calls[0].is_error)


async def test_a_script_calls_the_real_tool(policy: Policy, time_server: StdioServer) -> None:
    before: Message = {"role": "assistant", "content": "An example."}
    async with ServerPool(time_server) as pool:
        agent = MCPAgent(policy, pool, reward=grade, examples=[before], tools=["convert_time"])
        played = await agent.demonstrate(scenario(TOKYO, "21:00"), scripted)
    assert played.reward == 1.0
    assert played.metrics["valid_tool_calls"] == 1.0
    assert [tool["function"]["name"] for tool in played.tools or []] == ["convert_time"]  # type: ignore[index, call-overload]
    system, example, user, call, result, answer = played.messages()
    assert [one["role"] for one in (system, user, result)] == ["system", "user", "tool"]
    assert example == {**before, "weight": 0}
    assert "T21:00:00+09:00" in str(result["content"])
    assert answer == {"role": "assistant", "content": "21:00"}
    assert call["tool_calls"][0]["id"] == result["tool_call_id"]  # type: ignore[index, call-overload]


async def test_a_teacher_shows_what_it_says(policy: Policy, time_server: StdioServer) -> None:
    """The scripted policy's own server, spoken to as any OpenAI-compatible one."""
    teacher = Teacher(model="policy", base_url=str(policy.inference_base_url), api_key="sk-secret")
    assert "sk-secret" not in repr(teacher)
    async with ServerPool(time_server) as pool:
        agent = MCPAgent(policy, pool, reward=grade, limits=Limits(max_tokens=1))
        shown = await agent.demonstrate(task([("convert_time", TOKYO)], "21:00"), teacher)
        cut_off = await agent.demonstrate(task(*[[("convert_time", TOKYO)]] * 20), teacher)
    assert shown.reward == 1.0
    assert [sorted(one) for one in shown.messages()[2:]] == [
        ["role", "tool_calls"], ["content", "role", "tool_call_id"], ["content", "role"],
    ]  # fmt: skip
    assert shown.histories == []
    assert cut_off.status == "truncated"


async def test_the_good_ones_are_kept_once(
    policy: Policy, time_server: StdioServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run" / "demonstrations.jsonl"
    scenarios = [scenario(TOKYO, "21:00"), scenario(SEOUL, "9 o'clock")]
    async with ServerPool(time_server) as pool:
        agent = MCPAgent(policy, pool, reward=grade)
        with caplog.at_level(logging.WARNING):
            first = await warm_start(agent, path, scenarios, min_reward=0.5)
        assert "1 of 2 scenarios were demonstrated well" in caplog.text
        with pytest.raises(ExampleError, match="none of 1 scenarios"):
            await warm_start(agent, tmp_path / "none.jsonl", scenarios[1:], min_reward=0.5)
    again = await warm_start(agent, path, [])  # nothing is played: the pool is closed
    assert first == again
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["messages"][-1]["content"] == "21:00"


async def test_unanswered_ones_are_no_examples(
    policy: Policy, time_server: StdioServer, tmp_path: Path
) -> None:
    teacher = Teacher(model="policy", base_url=str(policy.inference_base_url))
    endless = task(*[[("convert_time", TOKYO)]] * 3)
    async with ServerPool(time_server) as pool:
        agent = MCPAgent(policy, pool, reward=lambda _: 1.0, limits=Limits(max_turns=2))
        with pytest.raises(ExampleError, match="came to an answer"):
            await warm_start(agent, tmp_path / "a.jsonl", [endless], teacher)


UNPLAYABLE: list[tuple[Any, str]] = [
    (None, "demonstration is None"),
    ({"calls": [{"arguments": {}}], "answer": "x"}, r"demonstration\.calls\.0\.name"),
    ({"calls": [], "answer": 3}, r"demonstration\.answer is 3"),
    ({"calls": [], "answer": "x", "extra": 1}, r"demonstration\.extra"),
]


@pytest.mark.parametrize(("demonstration", "said"), UNPLAYABLE)
async def test_what_cant_be_played_is_named(
    policy: Policy, time_server: StdioServer, tmp_path: Path, demonstration: Any, said: str
) -> None:
    async with ServerPool(time_server) as pool:
        agent = MCPAgent(policy, pool)
        given = {"task": "Noon?", "demonstration": demonstration}
        with pytest.raises(ScenarioError, match=said):
            await warm_start(agent, tmp_path / "a.jsonl", [given])
    assert not (tmp_path / "a.jsonl").exists()


async def test_a_script_that_fails_on_the_server(
    policy: Policy, time_server: StdioServer, tmp_path: Path
) -> None:
    wrong = scenario({**TOKYO, "target_timezone": "Asia/Nowhere"}, "21:00")
    async with ServerPool(time_server) as pool:
        agent = MCPAgent(policy, pool, reward=grade)
        with pytest.raises(ArtError, match="call of 'convert_time' fails"):
            await warm_start(agent, tmp_path / "a.jsonl", [wrong])
