"""Scenarios as the user gives them: any data, as long as it can be written down."""

from __future__ import annotations

import hashlib
import json
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, TypeVar, cast

from pydantic import BaseModel, JsonValue

from art_core.errors import ScenarioError

ScenarioT = TypeVar("ScenarioT")


def scenario_json(scenario: object, where: str = "scenario") -> JsonValue:
    """A scenario as JSON: to keep with its trajectories, and to know it again after a restart.

    Raises:
        ScenarioError: it isn't a dictionary, list, string, number, dataclass or pydantic
            model of such.
    """
    if isinstance(scenario, BaseModel):
        plain: object = scenario.model_dump(mode="json")
    elif is_dataclass(scenario) and not isinstance(scenario, type):
        plain = asdict(scenario)
    else:
        plain = scenario
    try:
        return cast("JsonValue", json.loads(json.dumps(plain, default=_nested)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ScenarioError(
            f"{where} is {reprlib.repr(scenario):.200} ({type(scenario).__name__}), which can't be "
            f"written as JSON: {error}",
            "Use a dictionary, a string, a dataclass or a pydantic model.",
        ) from error


def check_scenarios(scenarios: Iterable[ScenarioT], name: str) -> list[ScenarioT]:
    """The scenarios as a list, each of which can be written down.

    Raises:
        ScenarioError: it isn't a list of scenarios, there are none, or one can't be
            written as JSON; names it.
    """
    given = cast("object", scenarios)
    if isinstance(given, str | bytes | Mapping | BaseModel) or not isinstance(given, Iterable):
        raise ScenarioError(
            f"{name} is {scenarios!r:.200} ({type(scenarios).__name__})",
            "Pass a list with one entry per scenario.",
        )
    checked = list(scenarios)
    if not checked:
        raise ScenarioError(f"{name} is empty", "Pass at least one scenario.")
    for index, scenario in enumerate(checked):
        if scenario is None:
            raise ScenarioError(f"{name}[{index}] is None", "Leave it out.")
        scenario_json(scenario, f"{name}[{index}]")
    return checked


def scenario_digest(scenario: object) -> str:
    """Tells scenarios apart by content."""
    canonical = json.dumps(scenario_json(scenario), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _nested(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Sequence | set | frozenset):
        return list(cast("Iterable[object]", value))
    raise TypeError(f"{type(value).__name__} has no JSON form")
