"""What the SDK needs to reach a server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
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


_NOT_THERE = {502, 503, 504}
"""Statuses by which a proxy says that nobody is behind it."""


async def http_transport(
    server: HttpServer, stack: contextlib.AsyncExitStack, on_gone: Callable[[], None]
) -> Any:
    """A transport whose HTTP client the stack closes.

    Args:
        on_gone: called when the server says that it no longer knows this session, as one
            that was started again does (404 to a request with a session id, by the
            protocol), or isn't there. The SDK tells neither from a tool's error.
    """

    async def look(response: httpx2.Response) -> None:
        of_session = "mcp-session-id" in response.request.headers
        if response.status_code in _NOT_THERE or (response.status_code == 404 and of_session):
            on_gone()

    http = await stack.enter_async_context(
        httpx2.AsyncClient(
            headers=dict(server.headers), timeout=_HTTP_TIMEOUT, event_hooks={"response": [look]}
        )
    )
    return streamable_http_client(server.url, http_client=http, max_sse_event_size=None)
