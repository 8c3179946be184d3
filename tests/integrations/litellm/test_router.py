# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Routers, fallbacks and aliases."""

from __future__ import annotations

import asyncio
from typing import Any

import litellm
import pytest
from litellm.router import Router

from art_core.rollouts import TrainableModel
from tests.integrations.langgraph.provider import Provider
from tests.integrations.langgraph.served import records_of

pytestmark = [  # litellm's own
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

Policy = TrainableModel[Any]


def entry(name: str, **params: Any) -> dict[str, Any]:
    return {"model_name": name, "litellm_params": params}


@pytest.mark.parametrize("stream", [False, True])
async def test_many_rollouts_through_one_router_are_never_crossed(
    policy: Policy, stream: bool
) -> None:
    router = Router(model_list=[entry("agent", model="art/bot")])

    async def ask(text: str) -> str:
        messages: list[Any] = [{"role": "user", "content": text}]
        answer: Any = await router.acompletion("agent", messages, stream=stream)
        if stream:
            answer = litellm.stream_chunk_builder([chunk async for chunk in answer])
        return answer.choices[0].message.content

    async def play(marker: str) -> Any:
        async with policy.rollout() as trajectory:
            for turn in range(2):
                assert await ask(f"{marker} turn {turn}") == f"ok {marker}"
        return trajectory

    markers = [f"m{number}" for number in range(32)]
    trajectories = await asyncio.gather(*map(play, markers))
    for marker, trajectory in zip(markers, trajectories, strict=True):
        records = await records_of(policy, trajectory)
        assert [record.response["content"] for record in records] == [f"ok {marker}"] * 2


async def test_a_fallback_is_in_the_trajectory_and_not_trained_on(
    policy: Policy, provider: Provider
) -> None:
    router = Router(
        model_list=[
            entry("agent", model="art/bot@99"),  # a version that isn't served
            entry("big", model="openai/gpt-4.1", api_base=provider.base_url, api_key="secret"),
        ],
        fallbacks=[{"agent": ["big"]}],
        num_retries=0,
    )
    async with policy.rollout() as trajectory:
        answer: Any = await router.acompletion("agent", [{"role": "user", "content": "m5"}])
        await litellm.acompletion(model="art/bot", messages=[{"role": "user", "content": "m6"}])
    assert answer.choices[0].message.content == "ok m5"
    (call,) = trajectory.metadata["other_model_calls"]  # type: ignore[misc]
    assert (call["model"], call["status"]) == ("gpt-4.1", 200)  # type: ignore[index,call-overload]
    assert call["answer"]["choices"][0]["message"]["content"] == "ok m5"  # type: ignore[index,call-overload]
    assert "secret" not in trajectory.model_dump_json()
    (record,) = await records_of(policy, trajectory)
    assert record.response["content"] == "ok m6"


async def test_an_alias_swaps_the_model_of_an_app(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(litellm, "model_alias_map", {"gpt-4.1": "art/bot"})
    async with policy.rollout() as trajectory:
        await litellm.acompletion(model="gpt-4.1", messages=[{"role": "user", "content": "m1"}])
    assert len(trajectory.histories) == 1
