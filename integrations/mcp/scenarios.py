"""Scenarios from a server's tools: OpenPipe ART's function, on ruler's scenario maker."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, cast, overload

from pydantic import JsonValue
from rich.console import Console
from rich.table import Table

from art_core.errors import ConfigError
from art_core.trajectories import Tool
from ruler import JudgeModel, OpenAIServer, Scenario, make_scenarios


@dataclass(frozen=True, slots=True)
class MCPTool:
    """A tool, as OpenPipe ART describes one."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class MCPResource:
    """A resource, as OpenPipe ART describes one."""

    uri: str
    name: str
    description: str = ""
    mime_type: str | None = None


class GeneratedScenarioCollection(Sequence[Scenario]):
    """Scenarios, with OpenPipe ART's ways to look at them."""

    def __init__(self, scenarios: Sequence[Scenario]) -> None:
        self.scenarios = list(scenarios)

    def __len__(self) -> int:
        return len(self.scenarios)

    @overload
    def __getitem__(self, index: int) -> Scenario: ...
    @overload
    def __getitem__(self, index: slice) -> list[Scenario]: ...
    def __getitem__(self, index: int | slice) -> Scenario | list[Scenario]:
        return self.scenarios[index]

    def __iter__(self) -> Iterator[Scenario]:
        return iter(self.scenarios)

    def shuffle(self) -> Self:
        """A new collection in random order."""
        return type(self)(random.sample(self.scenarios, len(self)))

    def split(self, train_size: int) -> tuple[Self, Self]:
        """The first ``train_size`` and the others; see `ruler.split_scenarios` for a split
        that keeps related tasks together.

        Raises:
            ConfigError: there aren't so many.
        """
        if not 0 <= train_size <= len(self):
            raise ConfigError(
                f"train_size is {train_size}", f"There are {len(self)} scenarios to split."
            )
        return type(self)(self.scenarios[:train_size]), type(self)(self.scenarios[train_size:])

    def filter_by_difficulty(self, min_difficulty: int = 1, max_difficulty: int = 5) -> Self:
        return type(self)(
            [one for one in self.scenarios if min_difficulty <= one.difficulty <= max_difficulty]
        )

    def get_difficulty_distribution(self) -> Counter[int]:
        return Counter(one.difficulty for one in self.scenarios)

    def to_dicts(self) -> list[dict[str, JsonValue]]:
        return [{"task": one.task, "difficulty": one.difficulty} for one in self.scenarios]

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps({"scenarios": self.to_dicts()}, indent=indent)

    def preview(self, n: int = 5, max_task_length: int = 120) -> None:
        """Print the first ``n``."""
        Console().print(scenario_table(self.scenarios[:n], max_task_length))


def scenario_table(scenarios: Sequence[Scenario], longest: int | None = None) -> Table:
    """Scenarios for a terminal; tasks cut at ``longest`` characters."""
    table = Table("difficulty", "task", "done when", title_justify="left", show_lines=True)
    for one in scenarios:
        texts = [
            text if longest is None or len(text) <= longest else f"{text[:longest]}…"
            for text in (one.task, one.success)
        ]
        table.add_row(str(one.difficulty), *texts)
    return table


async def generate_scenarios(
    tools: Sequence[MCPTool] | Sequence[Mapping[str, Any]],
    resources: Sequence[MCPResource] | Sequence[Mapping[str, Any]] = (),
    num_scenarios: int = 24,
    show_preview: bool = True,
    custom_instructions: str | None = None,
    generator_model: str | JudgeModel = "openai/gpt-4.1-mini",
    generator_api_key: str | None = None,
    generator_base_url: str = "",
    *,
    path: Path | str | None = None,
    seed: int = 0,
    cache: Path | bool = True,
) -> GeneratedScenarioCollection:
    """Have a model write varied tasks that need these tools, equally many of each difficulty.

    Args:
        tools: as `MCPTool`, as such dictionaries, or as OpenAI's API spells tools.
        resources: what the server has to read, as context.
        custom_instructions: what the tasks should be like.
        generator_model: a LiteLLM model string, or a `ruler.JudgeModel`; at
            ``generator_base_url``, the name of a model there.
        path, seed, cache: see `ruler.make_scenarios`.

    Raises:
        ConfigError: there is neither a tool nor a resource, or an argument can't be used.
        JudgeError: not a single scenario could be had.
    """
    if not tools and not resources:
        raise ConfigError("there are no tools and no resources", "Pass at least one of them.")
    scenarios = await make_scenarios(
        n=num_scenarios,
        judge=_generator(generator_model, generator_api_key, generator_base_url),
        task=_describe(resources, custom_instructions),
        tools=[_as_openai(tool) for tool in tools],
        path=path,
        seed=seed,
        cache=cache,
    )
    collection = GeneratedScenarioCollection(scenarios)
    if show_preview:
        collection.preview()
    return collection


def _generator(model: str | JudgeModel, api_key: str | None, base_url: str) -> str | JudgeModel:
    if not isinstance(model, str):
        return model
    if base_url:
        return OpenAIServer(base_url=base_url, model=model, api_key=api_key or "none")
    if api_key is not None:
        raise ConfigError(
            "generator_api_key is given without generator_base_url",
            "Set the provider's environment variable (OPENAI_API_KEY), or give the URL, too.",
        )
    return model


def _describe(resources: Sequence[Any], instructions: str | None) -> str:
    lines = ["An assistant that does what users ask by calling the tools below."]
    if resources:
        lines.append("It can read these resources:")
        lines += [json.dumps(_fields(one), ensure_ascii=False) for one in resources]
    if instructions:
        lines += ["The tasks must heed this:", instructions]
    return "\n".join(lines)


def _as_openai(tool: MCPTool | Mapping[str, Any]) -> Tool:
    fields = _fields(tool)
    if fields.get("type") == "function" and "function" in fields:
        return fields
    names = ("name", "description", "parameters")
    return {"type": "function", "function": {key: fields[key] for key in names if key in fields}}


def _fields(value: Any) -> dict[str, JsonValue]:
    if isinstance(value, MCPTool | MCPResource):
        return {key: item for key, item in asdict(value).items() if item is not None}
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, JsonValue]", value))
    raise ConfigError(
        f"a tool or resource is {value!r:.100}", "Pass MCPTool, MCPResource or dictionaries."
    )
