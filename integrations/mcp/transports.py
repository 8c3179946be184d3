"""What the SDK needs to reach a server."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import httpx2
from mcp import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from integrations.mcp.servers import SANDBOX, HttpServer, StdioServer

_HTTP_TIMEOUT = httpx2.Timeout(30.0, read=None)
"""Seconds. A result may be long in coming: calls have limits of their own."""


def stdio_parameters(server: StdioServer, sandbox: Path | None) -> StdioServerParameters:
    """How to start a process, with the sandbox's path put in."""

    def filled(text: str) -> str:
        return text if sandbox is None else text.replace(SANDBOX, str(sandbox))

    env = {name: filled(value) for name, value in server.env.items()}
    cwd = sandbox if server.cwd is None else Path(filled(str(server.cwd)))
    return StdioServerParameters(
        command=filled(server.command),
        args=[filled(word) for word in server.args],
        env=env,
        cwd=cwd,
        # One broken character in a tool's result must not take the connection down.
        encoding_error_handler="replace",
    )


async def http_transport(server: HttpServer, stack: contextlib.AsyncExitStack) -> Any:
    """A transport whose HTTP client the stack closes."""
    http = await stack.enter_async_context(
        httpx2.AsyncClient(headers=dict(server.headers), timeout=_HTTP_TIMEOUT)
    )
    return streamable_http_client(server.url, http_client=http, max_sse_event_size=None)
