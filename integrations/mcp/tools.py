"""A server's tools as OpenAI's API spells them."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Iterable
from typing import cast

from mcp import Client, ClientSession
from mcp.types import Tool as ServerTool
from pydantic import JsonValue

from art_core.trajectories import Tool
from integrations.mcp.listing import list_tools

_log = logging.getLogger("integrations.mcp")
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64


async def tools_as_openai(client: Client | ClientSession) -> list[Tool]:
    """All tools of a connected server, of all pages, for ``chat.completions.create(tools=…)``.

    Raises:
        ToolServerError, MCPError: see `list_tools`.
    """
    tools = await list_tools(client)
    return [as_openai(tool, name) for name, tool in named(tools).items()]


def named(tools: Iterable[ServerTool], prefix: str = "") -> dict[str, ServerTool]:
    """The tools under names that OpenAI's API allows, each once.

    A name that a server lists twice can only be called once: the first one counts.
    """
    found: dict[str, ServerTool] = {}
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            _log.warning("the server lists the tool %r twice; the second is left out", tool.name)
            continue
        seen.add(tool.name)
        found[_free_name(prefix + tool.name, found)] = tool
    return found


def as_openai(tool: ServerTool, name: str) -> Tool:
    """One tool. Its schema is the server's own, as an object with properties."""
    schema = cast("dict[str, JsonValue]", copy.deepcopy(tool.input_schema))
    schema.pop("$schema", None)
    parameters = {"type": "object", "properties": {}, **schema}
    function: dict[str, JsonValue] = {"name": name, "parameters": parameters}
    description = tool.description or tool.title
    if description:
        function["description"] = description
    return {"type": "function", "function": function}


def _free_name(wanted: str, taken: dict[str, ServerTool]) -> str:
    clean = _NOT_ALLOWED.sub("_", wanted)[:_LONGEST_NAME] or "tool"
    name, number = clean, 2
    while name in taken:
        suffix = f"_{number}"
        name = clean[: _LONGEST_NAME - len(suffix)] + suffix
        number += 1
    return name
