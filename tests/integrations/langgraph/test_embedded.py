"""The zoo on the embedded engine: a real (tiny, random) model samples every token."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

import art_core as art
from art_core.rollouts.play import Play, playing
from art_core.trajectories import Trajectory
from integrations.langgraph import rollout
from tests.integrations.langgraph.author import author
from tests.integrations.langgraph.served import records_of
from tests.integrations.langgraph.shapes import (
    MODES,
    Mode,
    Shape,
    chain,
    plain,
    question,
    run,
)
from tests.integrations.langgraph.zoo_flow import FLOW
from tests.integrations.langgraph.zoo_models import MODELS

MARKERS = [f"m{number}" for number in range(1, 9)]
SHORT: dict[str, Any] = {"temperature": 0, "max_completion_tokens": 4}
# A random model doesn't call tools by itself, and writes a JSON object without end.
SHAPES = [
    shape
    for shape in [*FLOW, *MODELS]
    if shape.needs in ("text", "constrained output") and shape.name != "structured_by_json"
]
Policy = art.TrainableModel[Any]


@pytest.fixture
async def tiny(tiny_model_folder: Path, tmp_path: Path) -> AsyncGenerator[Policy]:
    model = art.TrainableModel[Any](name="tiny", project="zoo", base_model=str(tiny_model_folder))
    async with art.LocalBackend(tmp_path, deterministic=True) as backend:
        await model.register(backend)
        yield model


def diagonal() -> list[Any]:
    return [
        pytest.param(shape, mode, id=f"{shape.name}-{mode}")
        for shape, mode in zip(SHAPES, itertools.cycle(MODES), strict=False)
    ]


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
async def test_tokens_are_exact_and_results_those_of_the_undecorated_graph(
    shape: Shape, mode: Mode, tiny: Policy
) -> None:
    await check(shape, mode, tiny)


@pytest.mark.parametrize(("shape", "mode"), diagonal()[::4])
async def test_some_of_the_table(shape: Shape, mode: Mode, tiny: Policy) -> None:
    await check(shape, mode, tiny)


async def check(shape: Shape, mode: Mode, policy: Policy) -> None:
    async with author(policy.inference_base_url, mode, policy.name, **SHORT) as tools:
        graph = shape.build(tools)
        runs = [run(graph, shape.turns(marker), mode, marker) for marker in MARKERS]
        expected = [plain(state) for state in await asyncio.gather(*runs)]
    states: dict[str, Any] = {}
    async with author(None, mode, **SHORT) as tools:
        graph = shape.build(tools)

        @rollout(policy)
        async def answer(marker: str) -> None:
            states[marker] = await run(graph, shape.turns(marker), mode, marker)

        with playing(Play(mode="eval", seed=1)):
            trajectories = await asyncio.gather(*map(answer.play, MARKERS))
    assert [plain(states[marker]) for marker in MARKERS] == expected
    for trajectory in trajectories:
        await check_tokens(shape, policy, trajectory)


async def check_tokens(shape: Shape, policy: Policy, trajectory: Trajectory) -> None:
    records = {record.id: record for record in await records_of(policy, trajectory)}
    if shape.name != "router":  # which way it goes is up to the model
        nodes = sorted(record.tags["node"] for record in records.values())
        assert tuple(nodes) == shape.calls
    for history in trajectory.histories:
        last = records[history.completion_ids[-1]]
        assert history.token_ids == last.prompt_token_ids + last.completion_token_ids
        position = len(history.token_ids)
        for completion_id in reversed(history.completion_ids):
            record = records[completion_id]
            position = len(record.prompt_token_ids)
            end = position + len(record.completion_token_ids)
            assert history.token_ids[position:end] == record.completion_token_ids
            assert history.logprobs[position:end] == record.logprobs
            assert history.loss_mask[position:end] == record.trainable


async def test_a_decorated_function_is_trained(tiny: Policy) -> None:
    async with author(None, "ainvoke", max_completion_tokens=8) as tools:
        graph = chain({"ask": tools.answers(tools.chat())})

        @rollout(tiny)
        async def answer(marker: str) -> float:
            state = await graph.ainvoke(question(marker))
            return len(set(state["messages"][-1].text)) / 10

        config = art.TrainConfig(steps=2, groups_per_step=2, rollouts_per_group=4, eval_every=2)
        report = await art.train(tiny, answer, MARKERS[:6], config, validation=MARKERS[6:])
    assert await tiny.get_step() == 2
    assert sorted(report.rewards("train")) == [1, 2]
    assert report.before is not None
    assert report.after is not None
