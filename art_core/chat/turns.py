"""The one form that messages of every client are brought into."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

Role = Literal["system", "developer", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "developer", "user", "assistant", "tool")
_DEEPEST = 100
"""Nesting of JSON that templates and clients can be trusted to walk through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call of the assistant."""

    name: str
    arguments: str
    """JSON as the client or the model spelled it; not always valid: see `arguments_object`."""
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message."""

    role: Role
    text: str = ""
    name: str | None = None
    """The participant's name; on tool results the function's."""
    calls: tuple[Call, ...] = field(default_factory=tuple[Call, ...])
    """Assistant only."""
    reasoning: str = ""
    """Assistant only."""
    call_id: str | None = None
    """Tool results only: the call that this answers."""


def parse_json(text: str) -> Any:
    """Parse strict JSON: no NaN or infinities, no halves of characters; nested 100 deep at most.

    Raises:
        ValueError: it isn't.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if text.count("[") + text.count("{") > _DEEPEST and _depth(value) > _DEEPEST:
        raise ValueError("nested too deeply")
    # Python reads 1e999 as infinity, and \ud800 as a string that can't be sent anywhere.
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return value


def _depth(value: Any) -> int:
    depth = -1
    level: list[Any] = [value]
    while level:
        depth += 1
        level = [inner for item in level for inner in _items(item)]
    return depth


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def arguments_object(arguments: str) -> dict[str, Any] | None:
    """The arguments as a JSON object, or None where they aren't one."""
    try:
        value = parse_json(arguments)
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def same_call(call: Call) -> tuple[str, str]:
    """Name and arguments of a call, equal where they mean the same: ``1`` isn't ``true``."""
    # As text, because Python finds 1 == 1.0 == True.
    return call.name, json.dumps(arguments_object(call.arguments), sort_keys=True)
