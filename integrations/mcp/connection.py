"""One live connection to a server: opened in whatever protocol it speaks, and closed for sure."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import anyio
from mcp import Client
from mcp.client.session import ElicitationFnT, IncomingMessage, SamplingFnT
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CONNECTION_CLOSED,
    CallToolResult,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from art_core.errors import ToolServerDiedError
from integrations.mcp.redaction import Redactor
from integrations.mcp.servers import Server, StdioServer
from integrations.mcp.transports import http_transport, stdio_parameters

Mode = Literal["auto", "legacy"]
"""``auto`` asks which protocol the server speaks; ``legacy`` shakes hands as before 2026."""

_STDERR_SHOWN = 2_000
"""Characters of a dead server's stderr that its error shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """How requests that servers make of their client are answered.

    Without a function the capability isn't declared, and a server that asks all the same
    is told that it isn't supported.
    """

    sampling: SamplingFnT | None = None
    elicitation: ElicitationFnT | None = None


class Connection:
    """A server that answers, until it dies or is closed. Usable from any task of its loop."""

    def __init__(
        self,
        server: Server,
        mode: Mode,
        *,
        sandbox: Path | None = None,
        answers: Answers | None = None,
    ) -> None:
        self.server = server
        self.mode: Mode = mode
        self.redact = Redactor(server.secrets)
        self.tools_changed = False
        """The server said so since this was last set to False."""
        self._answers = answers or Answers()
        self._sandbox = sandbox
        self._client: Client | None = None
        self._dead = False
        self._closing = asyncio.Event()
        self._holder: asyncio.Task[None] | None = None
        self._stderr: IO[str] | None = None
        self._last_words = ""

    @property
    def client(self) -> Client:
        """The SDK's own.

        Raises:
            ToolServerDiedError: the connection is closed.
        """
        if self._client is None:
            raise self.died()
        return self._client

    @property
    def alive(self) -> bool:
        return self._client is not None and not self._dead

    async def open(self, timeout: float) -> None:
        """Start the server and shake hands.

        Raises:
            TimeoutError: it took longer.
            Exception: what the SDK raises, `MCPError` and ExceptionGroups among it.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A context of its own: what the server causes is no rollout's doing. And a task of
        # its own: the SDK's cancel scopes must be left by the task that entered them.
        self._holder = asyncio.create_task(self._hold(ready), context=contextvars.Context())
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(ready)
        except BaseException:
            await self.close()
            if ready.done() and not ready.cancelled():
                ready.exception()  # seen
            raise

    async def close(self) -> None:
        """Stop the server; nothing of it is left when this returns."""
        self._closing.set()
        if self._holder is not None:
            if self._client is None:
                self._holder.cancel()
            await asyncio.wait({self._holder})
        if self._stderr is not None:
            self._last_words = self.last_words()
            self._stderr.close()
            self._stderr = None

    async def call(self, name: str, arguments: dict[str, Any], **options: Any) -> CallToolResult:
        """``Client.call_tool``.

        Raises:
            ToolServerDiedError: the connection is gone.
            MCPError, RuntimeError, ValidationError: see there.
        """
        try:
            return await self.client.call_tool(name, arguments, **options)
        except MCPError as error:
            if self.notice(error):
                raise self.died() from error
            raise
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            self._dead = True
            raise self.died() from error

    def notice(self, error: MCPError) -> bool:
        """Whether ``error`` says that the connection is gone; remembered if so."""
        if error.code == CONNECTION_CLOSED:
            self._dead = True
        return self._dead

    def died(self) -> ToolServerDiedError:
        return ToolServerDiedError(
            f"the MCP server {self.server} died{self.last_words()}", "Does it run on its own?"
        )

    def last_words(self) -> str:
        """The end of the server's stderr, as the end of a sentence."""
        if self._stderr is None:
            return self._last_words
        self._stderr.seek(0)
        text = self.redact(self._stderr.read()).strip()
        return f"; its stderr ends with: {text[-_STDERR_SHOWN:]}" if text else ""

    async def _hold(self, ready: asyncio.Future[None]) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._new_client(stack))
                self._client = client
                ready.set_result(None)
                if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    await self._listen(client)
                await self._closing.wait()
        except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001  (whatever the SDK raises)
            # Before it was ready the opener is told; after that whoever calls a tool finds out.
            if not ready.done():
                ready.set_exception(
                    ConnectionAbortedError("closed while it was opened")
                    if isinstance(error, asyncio.CancelledError)
                    else error
                )
        finally:
            self._client = None
            self._dead = True

    async def _new_client(self, stack: contextlib.AsyncExitStack) -> Client:
        if isinstance(self.server, StdioServer):
            stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
            self._stderr = stderr
            transport = stdio_client(stdio_parameters(self.server, self._sandbox), errlog=stderr)
        else:
            transport = await http_transport(self.server, stack, self._on_gone)
        return Client(
            transport,
            mode=self.mode,
            cache=None,
            sampling_callback=self._answers.sampling,
            elicitation_callback=self._answers.elicitation,
            message_handler=self._on_message,
        )

    def _on_gone(self) -> None:
        self._dead = True

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.tools_changed = True

    async def _listen(self, client: Client) -> None:
        """Since 2026 changes are told only to those who listen; runs until closing."""
        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return

        async def listen() -> None:
            with contextlib.suppress(Exception):  # then changes are seen at the next rollout
                async with client.listen(tools_list_changed=True) as events:
                    async for _ in events:
                        self.tools_changed = True

        listening = asyncio.create_task(listen())
        await self._closing.wait()
        listening.cancel()
        await asyncio.wait({listening})
