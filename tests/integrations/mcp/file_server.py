"""A server of the official SDK that reads and writes files, and can die once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("files")
place = Path(sys.argv[1])


@server.tool()
def read(path: str) -> str:
    """Read a file of the working folder."""
    return Path(path).read_text()


@server.tool()
def write(path: str, text: str) -> str:
    """Write a file."""
    (place / path).write_text(text)
    return "written"


@server.tool()
def die_once() -> str:
    """Die, unless the marker says that it was done."""
    if not place.exists():
        place.touch()
        os._exit(1)
    return "alive"


if __name__ == "__main__":
    server.run()
