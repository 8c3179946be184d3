"""The graphs of the zoo work by themselves, and make the calls that they are said to make."""

from __future__ import annotations

import itertools

import pytest

from tests.integrations.langgraph.author import author
from tests.integrations.langgraph.provider import Provider
from tests.integrations.langgraph.shapes import MODES, Mode, Shape, run
from tests.integrations.langgraph.zoo_flow import FLOW
from tests.integrations.langgraph.zoo_models import MODELS

DIAGONAL = [
    pytest.param(shape, mode, id=f"{shape.name}-{mode}")
    for shape, mode in zip([*FLOW, *MODELS], itertools.cycle(MODES), strict=False)
    if shape.needs != "Responses API"  # the provider of these tests has none
]


@pytest.mark.parametrize(("shape", "mode"), DIAGONAL)
async def test_each_graph_runs(shape: Shape, mode: Mode, provider: Provider) -> None:
    async with author(provider.base_url, mode) as tools:
        result = await run(shape.build(tools), shape.turns("m1"), mode, "thread")
    assert result
    assert len(provider.requests) == len(shape.calls)
