"""What a model would see of servers."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic import BaseModel, JsonValue
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from art_core.trajectories import Tool
from integrations.mcp.connection import Connection
from integrations.mcp.listing import list_everything
from integrations.mcp.pool import ServerPool
from integrations.mcp.servers import Server
from integrations.mcp.toolbox import Toolbox


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """One server; secrets are already taken out."""

    name: str
    says_it_is: str
    protocol: str
    instructions: str | None
    resources: list[dict[str, JsonValue]]
    prompts: list[dict[str, JsonValue]]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All of it."""

    servers: list[ServerView]
    tools: list[Tool]

    @property
    def characters(self) -> int:
        """Of the tools as JSON, which are part of every prompt."""
        return len(json.dumps(self.tools, ensure_ascii=False))

    def as_json(self) -> dict[str, JsonValue]:
        servers = [
            {
                "name": one.name,
                "says_it_is": one.says_it_is,
                "protocol": one.protocol,
                "instructions": one.instructions,
                "resources": cast("JsonValue", one.resources),
                "prompts": cast("JsonValue", one.prompts),
            }
            for one in self.servers
        ]
        return {
            "servers": cast("JsonValue", servers),
            "tools": cast("JsonValue", self.tools),
            "characters": self.characters,
        }


async def look_at(
    servers: Sequence[Server], tools: Collection[str] | None = None, sandbox: Path | None = None
) -> View:
    """Start the servers and ask what they have.

    Raises:
        ToolServerStartError, ToolServerError: one can't be started or understood.
        ConfigError: ``tools`` names a tool that there isn't.
    """
    async with ServerPool(servers, sandbox=sandbox) as pool, pool.lease() as workspace:
        toolbox = Toolbox(workspace.connections, only=tools)
        await toolbox.refresh()
        views = [await _server_view(connection) for connection in workspace.connections]
        return View(servers=views, tools=toolbox.tools)


async def _server_view(connection: Connection) -> ServerView:
    client, redact = connection.client, connection.redact
    listed = await list_everything(client)
    info = client.server_info

    def plain(items: Sequence[BaseModel]) -> list[dict[str, JsonValue]]:
        dumped: JsonValue = [
            item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in items
        ]
        return cast("list[dict[str, JsonValue]]", redact.json(dumped))

    return ServerView(
        name=connection.server.name,
        says_it_is="" if info is None else redact(f"{info.name} {info.version}"),
        protocol=client.protocol_version,
        instructions=None if client.instructions is None else redact(client.instructions),
        resources=plain([*listed.resources, *listed.resource_templates]),
        prompts=plain(listed.prompts),
    )


def print_view(view: View) -> None:
    """For a terminal."""
    console = Console()
    for server in view.servers:
        console.print(
            f"[bold]{escape(server.name)}[/]  {escape(server.says_it_is)}  "
            f"protocol {server.protocol}",
            highlight=False,
        )
        if server.instructions:
            console.print(escape(server.instructions))
        for what, items in (("resource", server.resources), ("prompt", server.prompts)):
            for item in items:
                place = item.get("uri") or item.get("uriTemplate") or ""
                console.print(escape(f"{what}  {item.get('name')}  {place}"), highlight=False)
    table = Table("tool", "arguments", "description", title="tools", title_justify="left")
    for tool in view.tools:
        function = cast("dict[str, JsonValue]", tool["function"])
        table.add_row(
            str(function["name"]),
            escape(_arguments(function["parameters"])),
            escape(str(function.get("description", ""))),
        )
    console.print(table)
    console.print(
        f"{len(view.tools)} tools, {view.characters:,} characters of JSON in every prompt",
        highlight=False,
    )


def _arguments(schema: JsonValue) -> str:
    """Names and types, a line each; a star marks those that are required."""
    fields = cast("dict[str, JsonValue]", schema)
    properties = cast("dict[str, JsonValue]", fields.get("properties") or {})
    required = cast("list[str]", fields.get("required") or [])
    lines: list[str] = []
    for name, one in properties.items():
        kind = one.get("type", "any") if isinstance(one, dict) else "any"
        lines.append(f"{name}{'*' if name in required else ''}: {kind}")
    return "\n".join(lines)
