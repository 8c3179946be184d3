"""`generate_scenarios`: OpenPipe ART's arguments, ruler's maker, a fake model that writes."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import integrations.mcp
from art_core.errors import ConfigError
from integrations.mcp import MCPResource, MCPTool, generate_scenarios
from tests.ruler.fake_judge import FakeJudge, running_judge
from tests.ruler.test_scenarios import writes

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"q": {"type": "string"}}}
TOOLS = [MCPTool("search", "Search orders.", SCHEMA)]


@pytest.fixture
def writer() -> Generator[FakeJudge]:
    with running_judge() as judge:
        writes(judge)
        yield judge


def test_the_arguments_are_openpipe_arts() -> None:
    parameters = list(inspect.signature(generate_scenarios).parameters)
    assert parameters[:8] == [
        "tools", "resources", "num_scenarios", "show_preview", "custom_instructions",
        "generator_model", "generator_api_key", "generator_base_url",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "tools",
    [
        TOOLS,
        [{"name": "search", "description": "Search orders.", "parameters": SCHEMA}],
        [{"type": "function", "function": {"name": "search", "parameters": SCHEMA}}],
    ],
)
async def test_tools_in_all_spellings(writer: FakeJudge, tools: Any, tmp_path: Path) -> None:
    made = await generate_scenarios(
        tools,
        [MCPResource("file:///orders.csv", "orders")],
        num_scenarios=10,
        show_preview=False,
        custom_instructions="Only about Oslo.",
        generator_model="fake",
        generator_base_url=writer.url,
        cache=tmp_path / "answers.sqlite",
    )
    assert len(made) == 10
    assert made.get_difficulty_distribution() == dict.fromkeys(range(1, 6), 2)
    assert all(one.tools == ("search",) for one in made)
    train, held_out = made.shuffle().split(7)
    assert (len(train), len(held_out)) == (7, 3)
    assert len(made.filter_by_difficulty(4)) == 4
    for text in ("search", "file:///orders.csv", "Only about Oslo."):
        assert text in writer.prompt(0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"tools": []}, "no tools and no resources"),
        ({"tools": TOOLS, "generator_api_key": "sk"}, "without generator_base_url"),
        ({"tools": [7], "generator_base_url": "http://x"}, "a tool or resource is 7"),
    ],
)
async def test_what_cant_be_used(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        await generate_scenarios(**arguments)


def test_all_exported_names_exist() -> None:
    assert all(hasattr(integrations.mcp, name) for name in integrations.mcp.__all__)
