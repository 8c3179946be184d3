"""A server of the official SDK over streamable HTTP that tells which key it was shown."""

from __future__ import annotations

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("http")


@server.tool()
def authorization(context: Context) -> str:
    """The header that came with the call."""
    headers = context.headers or {}
    return str(headers.get("authorization"))


if __name__ == "__main__":
    server.run("streamable-http", port=int(sys.argv[1]))
