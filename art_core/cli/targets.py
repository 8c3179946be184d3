"""Finds what ``art check module:function`` names, and checks it."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from art_core.errors import ConfigError, ScenarioError
from art_core.rollouts import CheckReport, Playable, TrainableModel, check
from art_core.rollouts.playable import Player


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What `check` is given."""

    play: Player | Playable
    model: TrainableModel[Any]
    scenarios: list[Any]


def load_target(agent: str, *, model: str, scenarios: str, folder: Path) -> Target:
    """Import the user's module, from ``folder`` or wherever Python finds it.

    Raises:
        ConfigError: the module, or a name in it, isn't there or isn't what it should be.
        ScenarioError: the file of scenarios can't be read.
    """
    module_name, _, function = agent.partition(":")
    if not module_name or not function:
        raise ConfigError(
            f"{agent!r} isn't module:function", "For example: art check my_agent:play."
        )
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"module {module_name!r} can't be imported: {error}",
            f"Run this in the folder that has it; this is {folder}.",
        ) from error
    play = _attribute(module, function)
    if not isinstance(play, Playable) and not callable(play):
        raise ConfigError(
            f"{agent} is a {type(play).__name__}", "It must be a function that plays a scenario."
        )
    found = _attribute(module, model)
    if not isinstance(found, TrainableModel):
        raise ConfigError(
            f"{module_name}:{model} is a {type(found).__name__}",
            "It must be a TrainableModel; --model gives another name.",
        )
    return Target(
        play=cast("Player | Playable", play),
        model=cast("TrainableModel[Any]", found),
        scenarios=read_scenarios(Path(scenarios))
        if scenarios.endswith(".jsonl")
        else list(_attribute(module, scenarios)),
    )


async def run_check(target: Target, *, solved: float) -> CheckReport:
    """Check on a backend of its own, so that no run is touched and the base model is played."""
    from art_core.backends.local import LocalBackend

    with tempfile.TemporaryDirectory(prefix="art-check-") as root:
        async with LocalBackend(root) as backend:
            await target.model.register(backend)
            return await check(target.model, target.play, target.scenarios, solved=solved)


def _attribute(module: object, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        raise ConfigError(
            f"module {getattr(module, '__name__', module)!r} has no {name!r}",
            "The module must have the function, a model and scenarios; --model and --scenarios "
            "give other names.",
        ) from None


def read_scenarios(path: Path) -> list[Any]:
    """The JSON values in a file, one a line; empty lines are passed over.

    Raises:
        ScenarioError: the file can't be read; names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ScenarioError(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path} isn't UTF-8: {error}", "Save it as UTF-8.") from error
    scenarios: list[Any] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            scenarios.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise ScenarioError(
                f"{path}, line {number}, isn't JSON: {error}", "One JSON value per line."
            ) from error
    return scenarios
