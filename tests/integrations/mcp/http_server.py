"""A server of the official SDK over streamable HTTP that tells which key it was shown."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("http")


@server.tool()
def authorization(context: Context) -> str:
    """The header that came with the call."""
    headers = context.headers or {}
    return str(headers.get("authorization"))


@server.tool()
def die_once(marker: str) -> str:
    """Die, unless the file says that it was done."""
    if not Path(marker).exists():
        Path(marker).touch()
        os._exit(1)
    return "alive"


if __name__ == "__main__":
    server.run("streamable-http", port=int(sys.argv[1]))
