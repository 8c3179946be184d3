"""The tools of a rollout: what the model sees of them, calls, and what came of each call."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for
from mcp.shared.exceptions import MCPError
from mcp.types import Tool as ServerTool
from pydantic import JsonValue, ValidationError
from referencing.exceptions import Unresolvable

from art_core.errors import ConfigError, ToolServerError
from art_core.trajectories import Tool
from integrations.mcp.connection import Connection
from integrations.mcp.listing import list_tools
from integrations.mcp.results import cut, result_text
from integrations.mcp.tools import as_openai, named


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call that a model asked for, and what came of it."""

    name: str
    """As the model wrote it."""
    arguments: dict[str, JsonValue] | None
    """None: what it wrote is no JSON object."""
    valid: bool
    """Whether there is such a tool, and the arguments fit its schema."""
    result: str
    """What the model was shown."""
    is_error: bool
    seconds: float

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "name": self.name,
            "arguments": self.arguments,
            "valid": self.valid,
            "result": self.result,
            "is_error": self.is_error,
            "seconds": round(self.seconds, 4),
        }


class _Bound:
    """A tool and the connection that it is called over."""

    def __init__(self, connection: Connection, tool: ServerTool, name: str) -> None:
        self.connection = connection
        self.tool = tool
        self.shown = cast("Tool", connection.redact.json(as_openai(tool, name)))

    @cached_property
    def _validator(self) -> Any:
        schema: dict[str, Any] = self.tool.input_schema
        kind: Any = validator_for(schema)
        kind.check_schema(schema)
        return kind(schema)

    def problem_with(self, arguments: dict[str, Any]) -> str | None:
        """What in the arguments doesn't fit the schema; a broken schema fits all."""
        try:
            error: Any = next(self._validator.iter_errors(arguments), None)
        except (SchemaError, Unresolvable):
            return None
        return None if error is None else str(error.message)


class Toolbox:
    """All tools of the servers of one rollout.

    Args:
        only: names of the tools shown to the model; None: all.
        timeout: seconds for one call.
        most_characters: of a result; the rest is cut off, and said to be.
    """

    def __init__(
        self,
        connections: Collection[Connection],
        *,
        only: Collection[str] | None = None,
        timeout: float = 60.0,
        most_characters: int = 8_000,
    ) -> None:
        self.connections = list(connections)
        self.calls: list[ToolCall] = []
        """So far, in the order in which they ended."""
        self._only = only
        self._timeout = timeout
        self._most_characters = most_characters
        self._bound: dict[str, _Bound] = {}

    @property
    def tools(self) -> list[Tool]:
        """As OpenAI's API spells them."""
        return [bound.shown for bound in self._bound.values()]

    async def refresh(self) -> None:
        """Ask the servers for their tools.

        Raises:
            ToolServerError: one breaks the protocol.
            ToolServerDiedError: one is gone.
            ConfigError: ``only`` names a tool that there isn't.
        """
        bound: dict[str, _Bound] = {}
        for connection in self.connections:
            connection.tools_changed = False
            prefix = f"{connection.server.name}__" if len(self.connections) > 1 else ""
            for name, tool in named(await _tools_of(connection), prefix).items():
                bound.setdefault(name, _Bound(connection, tool, name))
        missing = sorted(set(self._only or ()) - set(bound))
        if missing:
            raise ConfigError(
                f"there is no tool {missing[0]!r}", f"There are: {', '.join(bound) or 'none'}."
            )
        self._bound = {
            name: one for name, one in bound.items() if self._only is None or name in self._only
        }

    async def refresh_if_changed(self) -> None:
        """`refresh`, if a server has said that its tools are others now."""
        if any(connection.tools_changed for connection in self.connections):
            await self.refresh()

    async def call(self, name: str, arguments: str) -> ToolCall:
        """Call a tool with arguments as the model wrote them; errors are results, too.

        Raises:
            ToolServerDiedError: the server is gone.
        """
        started = time.monotonic()
        bound = self._bound.get(name)
        parsed = _parse(arguments)
        if bound is None:
            known = ", ".join(self._bound) or "none"
            outcome, valid = _Failure(f"there is no tool {name!r}; there are: {known}"), False
        elif parsed is None:
            outcome, valid = _Failure(f"arguments are no JSON object: {arguments!r:.200}"), False
        else:
            problem = bound.problem_with(parsed)
            valid = problem is None
            outcome = await self._ask(bound, parsed)
            if problem is not None and isinstance(outcome, _Failure):
                outcome = _Failure(f"{outcome.text}\n(the arguments don't fit: {problem:.500})")
        text = outcome.text
        if bound is not None:
            text = bound.connection.redact(text)
        call = ToolCall(
            name=name,
            arguments=parsed,
            valid=valid,
            result=cut(text, self._most_characters),
            is_error=isinstance(outcome, _Failure),
            seconds=time.monotonic() - started,
        )
        self.calls.append(call)
        return call

    async def _ask(self, bound: _Bound, arguments: dict[str, Any]) -> _Outcome:
        progress = ""

        async def note(done: float, total: float | None, message: str | None) -> None:
            nonlocal progress
            share = f"{done:g}" if total is None else f"{done:g} of {total:g}"
            progress = f"; it had got to {share}" + (f" ({message})" if message else "")

        try:
            async with asyncio.timeout(self._timeout):
                result = await bound.connection.call(
                    bound.tool.name, arguments, progress_callback=note
                )
        except TimeoutError:
            return _Failure(f"no result within {self._timeout:g} s{progress}")
        except MCPError as error:
            return _Failure(error.message or f"error {error.code}")
        except ValidationError as error:
            return _Failure(f"the server's answer breaks the protocol: {error.errors()[0]['msg']}")
        except RuntimeError as error:
            if isinstance(error, ToolServerError):
                raise
            return _Failure(str(error))  # the SDK's: the result doesn't fit the tool's own schema
        text = result_text(result)
        return _Failure(text) if result.is_error else _Outcome(text)


@dataclass(frozen=True, slots=True)
class _Outcome:
    text: str


class _Failure(_Outcome):
    """What the model is told instead of a result."""

    def __init__(self, text: str) -> None:
        super().__init__(text if text.lower().startswith("error") else f"Error: {text}")


async def _tools_of(connection: Connection) -> list[ServerTool]:
    try:
        return await list_tools(connection.client)
    except MCPError as error:
        if connection.notice(error):
            raise connection.died() from error
        raise ToolServerError(
            f"the MCP server {connection.server} doesn't list its tools: "
            f"{connection.redact(error.message)}",
            "Does it run on its own?",
        ) from error


def _parse(arguments: str) -> dict[str, JsonValue] | None:
    """A JSON object; an empty text is an empty one, as many models write it."""
    try:
        found: object = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, JsonValue]", found) if isinstance(found, dict) else None
