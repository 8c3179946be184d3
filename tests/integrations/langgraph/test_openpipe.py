"""OpenPipe ART's signatures, with the arguments honoured."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_openai import ChatOpenAI

from art_core.rollouts import TrainableModel
from art_core.trajectories import Trajectory
from integrations.langgraph import init_chat_model, wrap_rollout
from tests.integrations.langgraph.served import records_of
from tests.integrations.langgraph.shapes import chain, question

Policy = TrainableModel[Any]


async def play(policy: Policy, config: Any = None, **options: Any) -> Trajectory:
    """A rollout as code written for OpenPipe ART spells it."""

    async def run(model: Policy, marker: str) -> Trajectory:
        llm = init_chat_model(model.name, **options)

        async def node(state: Any) -> Any:
            return {"messages": [await llm.ainvoke(state["messages"], config)]}

        await chain({"one": node, "two": node}).ainvoke(question(marker))
        return Trajectory(reward=1.0, messages_and_choices=[], metadata={"marker": marker})

    return await wrap_rollout(policy, run)(policy, "m3")


async def test_a_wrapped_rollout_has_the_recorded_tokens(policy: Policy) -> None:
    trajectory = await play(policy)
    records = await records_of(policy, trajectory)
    assert sorted(record.tags["node"] for record in records) == ["one", "two"]
    assert (trajectory.reward, trajectory.metadata) == (1.0, {"marker": "m3"})
    assert trajectory.histories
    assert [message["role"] for message in trajectory.messages()][:2] == ["user", "assistant"]


async def test_options_are_honoured(policy: Policy) -> None:
    records = await records_of(policy, await play(policy, max_tokens=4, timeout=30))
    assert {record.sampling.max_tokens for record in records} == {4}


async def test_fields_can_be_configured_at_a_call(policy: Policy) -> None:
    trajectory = await play(
        policy,
        config={"configurable": {"my_max_tokens": 3}},
        configurable_fields=["max_tokens"],
        config_prefix="my",
    )
    records = await records_of(policy, trajectory)
    assert {record.sampling.max_tokens for record in records} == {3}


async def test_a_provider_does_not_matter_inside(policy: Policy) -> None:
    assert (await play(policy, model_provider="anthropic")).histories


async def test_exceptions_get_out(policy: Policy) -> None:
    async def run() -> Trajectory:
        raise KeyError("missing")

    with pytest.raises(KeyError, match="missing"):
        await wrap_rollout(policy, run)()


def test_outside_a_rollout_it_is_langchains_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    llm = init_chat_model("gpt-4.1", model_provider="openai", temperature=0.5)
    assert isinstance(llm, ChatOpenAI)
    assert (llm.model_name, llm.temperature) == ("gpt-4.1", 0.5)
