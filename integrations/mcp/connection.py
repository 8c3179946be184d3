"""One live connection to a server: opened in whatever protocol it speaks, and closed for sure."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, cast

import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.session import ElicitationFnT, IncomingMessage, SamplingFnT
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CONNECTION_CLOSED,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolResult,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from art_core.errors import ToolServerDiedError, ToolServerStartError
from integrations.mcp.redaction import Redactor
from integrations.mcp.servers import SANDBOX, HttpServer, Server, StdioServer

Mode = Literal["auto", "legacy"]
"""``auto`` asks which protocol the server speaks; ``legacy`` shakes hands as before 2026."""

_HTTP_TIMEOUT = httpx2.Timeout(30.0, read=None)
"""Seconds. A result may be long in coming: calls have limits of their own."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds."""

    probe: float = 5.0
    """For asking a server which protocol it speaks; then it's started again for the old one.
    Servers built on old SDKs never answer the question."""
    start: float = 60.0
    """For starting and shaking hands; what ``uvx`` and ``npx`` download first is included."""


@dataclass(slots=True)
class Negotiated:
    """Which mode worked, so that the next process of the same server is opened in it at once."""

    modes: dict[str, Mode] = field(default_factory=dict[str, Mode])


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
            transport = stdio_client(_parameters(self.server, self._sandbox), errlog=stderr)
        else:
            transport = await _http_transport(self.server, stack)
        return Client(
            transport,
            mode=self.mode,
            cache=None,
            sampling_callback=self._answers.sampling,
            elicitation_callback=self._answers.elicitation,
            message_handler=self._on_message,
        )

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


async def connect(
    server: Server,
    *,
    sandbox: Path | None = None,
    answers: Answers | None = None,
    timeouts: Timeouts | None = None,
    negotiated: Negotiated | None = None,
) -> Connection:
    """Open a connection in the newest protocol that the server speaks.

    Raises:
        ToolServerStartError: it can't be started, reached or understood.
    """
    negotiated = negotiated or Negotiated()
    timeouts = timeouts or Timeouts()
    problem: str = ""
    for mode, timeout in _attempts(negotiated.modes.get(server.name), timeouts):
        connection = Connection(server, mode, sandbox=sandbox, answers=answers)
        try:
            await connection.open(timeout)
        except (Exception, ExceptionGroup) as error:  # noqa: BLE001  (an SDK's; told below)
            cause = _first(error)
            problem = connection.redact(_describe(cause, timeout)) + connection.last_words()
            if isinstance(cause, FileNotFoundError | PermissionError | ValueError):
                break
            unsupported = isinstance(cause, MCPError) and cause.code == UNSUPPORTED_PROTOCOL_VERSION
            if mode == "legacy" and not unsupported:
                break
        else:
            negotiated.modes[server.name] = mode
            return connection
    raise ToolServerStartError(
        f"the MCP server {server} can't be started or reached: {problem}",
        "Run its command in a terminal, or check the URL.",
    )


def _attempts(known: Mode | None, timeouts: Timeouts) -> Sequence[tuple[Mode, float]]:
    if known is not None:
        return ((known, timeouts.start),)
    # The last is for a server that only speaks the new protocol and starts slowly.
    return ("auto", timeouts.probe), ("legacy", timeouts.start), ("auto", timeouts.start)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _describe(error: BaseException, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout:g} s"
    return f"{type(error).__name__}: {error}"


def _parameters(server: StdioServer, sandbox: Path | None) -> StdioServerParameters:
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


async def _http_transport(server: HttpServer, stack: contextlib.AsyncExitStack) -> Any:
    http = await stack.enter_async_context(
        httpx2.AsyncClient(headers=dict(server.headers), timeout=_HTTP_TIMEOUT)
    )
    return streamable_http_client(server.url, http_client=http, max_sse_event_size=None)
