"""Fixtures of the MCP tests: servers that are really started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integrations.mcp import StdioServer

BAD = Path(__file__).with_name("bad_server.py")
MakeBad = Callable[..., StdioServer]


@pytest.fixture
def bad_server() -> MakeBad:
    """``bad_server("slow_pages", env=…)``: the misbehaving server, in its own process."""

    def make(*behaviour: str, **fields: Any) -> StdioServer:
        return StdioServer(command=sys.executable, args=(str(BAD), *behaviour), **fields)

    return make


@pytest.fixture
def time_server() -> StdioServer:
    """mcp-server-time, which speaks the protocol of 2026-07-28."""
    return StdioServer(command=str(Path(sys.executable).with_name("mcp-server-time")), name="time")
