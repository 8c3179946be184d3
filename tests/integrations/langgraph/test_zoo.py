"""Every graph of the zoo, run in every way, eight rollouts at once, through the real gateway."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from art_core.rollouts import TrainableModel
from integrations.langgraph import rollout
from tests.integrations.langgraph.author import author
from tests.integrations.langgraph.served import records_of
from tests.integrations.langgraph.shapes import MODES, Graph, Mode, Shape, plain, run, run_sync
from tests.integrations.langgraph.zoo_flow import FLOW
from tests.integrations.langgraph.zoo_models import MODELS

MARKERS = [f"m{number}" for number in range(1, 9)]
Policy = TrainableModel[Any]


def decorated(
    policy: Policy, graph: Graph, shape: Shape, mode: Mode, states: dict[str, Any]
) -> Any:
    """The function that a user would decorate, synchronous where the graph's nodes are."""
    if mode in ("invoke", "batch"):

        @rollout(policy)
        def answer(marker: str) -> None:
            config = {"configurable": {"thread_id": marker}}
            states[marker] = run_sync(graph, shape.turns(marker), mode, config)  # type: ignore[arg-type]

        return answer

    @rollout(policy)
    async def aanswer(marker: str) -> None:
        states[marker] = await run(graph, shape.turns(marker), mode, marker)

    return aanswer


async def undecorated(policy: Policy, shape: Shape, mode: Mode) -> dict[str, Any]:
    """What the graph gives by itself when its author had named the same model."""
    async with author(policy.inference_base_url, mode, model=policy.name) as tools:
        graph = shape.build(tools)
        runs = [run(graph, shape.turns(marker), mode, marker) for marker in MARKERS]
        return dict(zip(MARKERS, map(plain, await asyncio.gather(*runs)), strict=True))


ZOO = [*FLOW, *MODELS]


def table() -> list[Any]:
    return [pytest.param(shape, id=shape.name) for shape in ZOO]


def in_one_mode() -> list[Any]:
    return [
        pytest.param(shape, mode, id=f"{shape.name}-{mode}")
        for shape, mode in zip(ZOO, itertools.cycle(MODES), strict=False)
    ]


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", table())
async def test_calls_belong_to_their_rollout_and_node(
    shape: Shape, mode: Mode, policy: Policy
) -> None:
    await check(shape, mode, policy)


@pytest.mark.parametrize(("shape", "mode"), in_one_mode())
async def test_calls_belong_to_their_rollout_and_node_in_one_mode(
    shape: Shape, mode: Mode, policy: Policy
) -> None:
    """The diagonal of the table above: each graph once, each mode often."""
    await check(shape, mode, policy)


async def check(shape: Shape, mode: Mode, policy: Policy) -> None:
    expected = await undecorated(policy, shape, mode)
    states: dict[str, Any] = {}
    async with author(None, mode) as tools:
        play: Callable[[str], Any] = decorated(policy, shape.build(tools), shape, mode, states).play
        trajectories = await asyncio.gather(*map(play, MARKERS))
    assert {marker: plain(state) for marker, state in states.items()} == expected
    for marker, trajectory in zip(MARKERS, trajectories, strict=True):
        records = await records_of(policy, trajectory)
        assert tuple(sorted(record.tags["node"] for record in records)) == shape.calls
        for record in records:
            assert record.rollout_id == trajectory.rollout_id
            assert marker in str(record.messages)
            assert {"step", "checkpoint_ns"} <= set(record.tags)
        assert sum(history.sampled_tokens for history in trajectory.histories) == sum(
            len(record.completion_token_ids) for record in records
        )
