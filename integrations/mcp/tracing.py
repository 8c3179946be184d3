"""`trace`: the tool calls of an agent that has its own MCP session, in its trajectories."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

from mcp.types import CallToolResult
from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from art_core.rollouts import current_trajectory
from art_core.trajectories import Trajectory
from integrations.mcp.redaction import Redactor
from integrations.mcp.results import cut, result_text

_MOST_CHARACTERS = 8_000
_CALLS = "mcp_calls"


class CallsTools(Protocol):
    """``mcp.Client``, ``mcp.ClientSession``, and what else calls tools like them."""

    @property
    def call_tool(self) -> Callable[..., Awaitable[Any]]: ...


SessionT = TypeVar("SessionT", bound=CallsTools)


def trace(session_or_client: SessionT, *, secrets: Mapping[str, str] | None = None) -> SessionT:
    """Record each tool call made inside a rollout in the rollout's trajectory.

    The session itself comes back: it works as before, with ``call_tool`` recording. A
    trajectory gets ``metadata["mcp_calls"]``, a list with name, arguments, result, whether
    it's an error, the exception if one was raised, and seconds; and the metrics
    ``tool_calls`` and ``tool_errors``. Outside of rollouts nothing is recorded.

    Args:
        secrets: values, by any name, that are to be replaced in what is recorded.
    """
    original = session_or_client.call_tool
    if getattr(original, "_art_traced", False):
        return session_or_client
    redact = Redactor(secrets or {})

    @functools.wraps(original)
    async def call_tool(
        name: str, arguments: dict[str, Any] | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        trajectory = current_trajectory()
        started = time.monotonic()
        record: dict[str, JsonValue] = {"name": name, "arguments": _plain(arguments or {})}
        try:
            result = await original(name, arguments, *args, **kwargs)
        except BaseException as error:
            record |= {
                "result": None,
                "is_error": True,
                "error": f"{type(error).__name__}: {error}",
            }
            raise
        else:
            record |= _outcome(result)
            return result
        finally:
            if trajectory is not None:
                record["seconds"] = round(time.monotonic() - started, 4)
                _keep(trajectory, cast("dict[str, JsonValue]", redact.json(record)))

    call_tool._art_traced = True  # type: ignore[attr-defined]
    object.__setattr__(session_or_client, "call_tool", call_tool)
    return session_or_client


def _outcome(result: Any) -> dict[str, JsonValue]:
    if not isinstance(result, CallToolResult):
        return {"result": cut(str(result), _MOST_CHARACTERS), "is_error": False, "error": None}
    return {
        "result": cut(result_text(result), _MOST_CHARACTERS),
        "is_error": result.is_error,
        "error": None,
    }


def _keep(trajectory: Trajectory, record: dict[str, JsonValue]) -> None:
    calls = cast("list[JsonValue]", trajectory.metadata.setdefault(_CALLS, []))
    calls.append(record)
    metrics = trajectory.metrics
    metrics["tool_calls"] = metrics.get("tool_calls", 0) + 1
    metrics["tool_errors"] = metrics.get("tool_errors", 0) + bool(record["is_error"])


def _plain(value: Any) -> JsonValue:
    return cast("JsonValue", to_jsonable_python(value, fallback=str))
