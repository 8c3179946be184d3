# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Frameworks built on litellm, unchanged inside a rollout."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from art_core.rollouts import TrainableModel
from tests.integrations.langgraph.served import records_of

pytestmark = pytest.mark.filterwarnings("ignore")

Policy = TrainableModel[Any]


async def test_the_agents_sdk_through_its_litellm_model(policy: Policy) -> None:
    import agents
    from agents.extensions.models.litellm_model import LitellmModel

    agents.set_tracing_disabled(True)

    @agents.function_tool
    def look(x: str) -> str:
        """Look something up."""
        return f"found {x}"

    agent = agents.Agent(name="a", model=LitellmModel(model="art/bot"), tools=[look])
    async with policy.rollout() as trajectory:
        result = await agents.Runner.run(agent, 'm3 [[call look {"x": "y"}]]')
    assert result.final_output == "ok m3"
    first, second = await records_of(policy, trajectory)
    assert first.response["tool_calls"]
    assert [len(history.completion_ids) for history in trajectory.histories] == [2]
    assert second.response["content"] == "ok m3"


async def test_smolagents(policy: Policy) -> None:
    from smolagents import LiteLLMModel, ToolCallingAgent, tool

    @tool
    def look(x: str) -> str:
        """Look something up.

        Args:
            x: what
        """
        return f"found {x}"

    agent = ToolCallingAgent(
        tools=[look], model=LiteLLMModel("art/bot"), max_steps=1, verbosity_level=0
    )
    async with policy.rollout() as trajectory:
        await asyncio.to_thread(agent.run, 'm4 [[call look {"x": "y"}]]')
    records = await records_of(policy, trajectory)
    assert records
    calls: Any = records[0].response["tool_calls"]
    assert calls[0]["function"]["name"] == "look"


async def test_dspy(policy: Policy) -> None:
    import dspy

    lm = dspy.LM("art/bot", cache=False)
    async with policy.rollout() as trajectory:
        with dspy.context(lm=lm):
            answers = await asyncio.to_thread(lm, "hello m5")
    assert answers == ["ok m5"]
    assert len(await records_of(policy, trajectory)) == 1
