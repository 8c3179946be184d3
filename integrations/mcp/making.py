"""Scenarios for servers: made from what they offer, or read from a file."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from art_core.errors import ScenarioError
from art_core.rollouts.scenarios import scenario_digest
from integrations.mcp.inspecting import look_at
from integrations.mcp.scenarios import GeneratedScenarioCollection, generate_scenarios
from integrations.mcp.servers import Server
from ruler import JudgeModel
from ruler.checking import read_text

TaskScenario = dict[str, JsonValue]
"""``task`` (a text), perhaps ``success``, and whatever else a reward function needs."""


async def make(
    servers: Sequence[Server],
    *,
    judge: JudgeModel,
    count: int,
    path: Path,
    tools: Collection[str] | None = None,
    sandbox: Path | None = None,
    instructions: str | None = None,
    seed: int = 0,
) -> GeneratedScenarioCollection:
    """Have the judge write tasks for the servers' tools.

    Raises:
        ToolServerStartError, ToolServerError: a server can't be used.
        ConfigError, JudgeError: see `generate_scenarios`.
    """
    view = await look_at(servers, tools, sandbox)
    files = [] if sandbox is None else [{"file": name} for name in _files(sandbox)]
    return await generate_scenarios(
        view.tools,
        [*(one for server in view.servers for one in server.resources), *files],
        num_scenarios=count,
        show_preview=False,
        custom_instructions=instructions,
        generator_model=judge,
        path=path,
        seed=seed,
    )


def _files(folder: Path, most: int = 100) -> list[str]:
    """What tasks can be about: the names of files there are, relative to the folder."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return [name for name in names if not name.startswith(".")][:most]


def read_tasks(path: Path) -> list[TaskScenario]:
    """Scenarios from JSON lines.

    Raises:
        ScenarioError: a line isn't an object with a text called ``task``, two are the
            same, or there are less than two.
        ConfigError: the file can't be read.
    """
    found: dict[str, TaskScenario] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value: object = json.loads(line)
        except ValueError as error:
            raise ScenarioError(f"{path} line {number} is not JSON: {error}", _REMEDY) from error
        task = cast("TaskScenario", value).get("task") if isinstance(value, dict) else None
        if not isinstance(task, str) or not task.strip():
            raise ScenarioError(f"{path} line {number} has no text called task", _REMEDY)
        scenario = cast("TaskScenario", value)
        if found.setdefault(scenario_digest(scenario), scenario) is not scenario:
            raise ScenarioError(f"{path} line {number} repeats another one", "Delete it.")
    if len(found) < 2:
        raise ScenarioError(
            f"{path} has {len(found)} scenarios", "Two at least: to train on, and to hold out."
        )
    return list(found.values())


_REMEDY = 'Each line is an object: {"task": "What is …?"}'
