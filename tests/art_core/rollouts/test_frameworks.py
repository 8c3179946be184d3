"""Agents written with frameworks that make their own clients."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from art_core.rollouts import TrainableModel

if TYPE_CHECKING:
    from scripted_backend import ScriptedBackend


async def test_langchains_openai_model_is_captured(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    from langchain_openai import ChatOpenAI

    backend.script = lambda call: f"you said {call.last}"
    chat = ChatOpenAI(model="gpt-4o")
    async with model.rollout() as trajectory:
        answers = [
            (await chat.ainvoke("one")).content,
            (await asyncio.to_thread(chat.invoke, "two")).content,
            "".join([str(chunk.content) async for chunk in chat.astream("three")]),
            *[message.content for message in await asyncio.to_thread(chat.batch, ["four", "five"])],
        ]
    expected = [f"you said {word}" for word in ("one", "two", "three", "four", "five")]
    assert answers == expected
    assert {call.rollout_id for call in backend.calls} == {trajectory.rollout_id}
    assert len(trajectory.histories) == 5


async def test_the_agents_sdk_is_captured_with_its_responses_api(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    agents = pytest.importorskip("agents")
    agents.set_tracing_disabled(True)
    backend.script = lambda _: "final answer"
    agent = agents.Agent(name="helper", instructions="be brief", model="gpt-4o")
    async with model.rollout() as trajectory:
        result = await agents.Runner.run(agent, "hello")
    assert result.final_output == "final answer"
    (call,) = backend.calls
    assert call.path == f"/r/{trajectory.rollout_id}/v1/responses"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
async def test_litellm_is_captured(
    backend: ScriptedBackend, model: TrainableModel[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    messages = [{"role": "user", "content": "hello"}]
    async with model.rollout() as trajectory:
        await litellm.acompletion(model="openai/gpt-4o", messages=messages)  # pyright: ignore[reportUnknownMemberType]
        await asyncio.to_thread(litellm.completion, model="openai/gpt-4o", messages=messages)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    assert [call.rollout_id for call in backend.calls] == [trajectory.rollout_id] * 2
