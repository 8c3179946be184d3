"""Opening a connection in the newest protocol that a server speaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from mcp.shared.exceptions import MCPError
from mcp.types import UNSUPPORTED_PROTOCOL_VERSION

from art_core.errors import ToolServerStartError
from integrations.mcp.connection import Answers, Connection, Mode
from integrations.mcp.servers import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds."""

    probe: float = 5.0
    """For asking a server which protocol it speaks; then it's started again for the old one.
    Servers built on old SDKs never answer the question."""
    start: float = 60.0
    """For starting and shaking hands; what ``uvx`` and ``npx`` download first is included."""
    restart: float = 30.0
    """That a server behind a URL, which only others can start again, is waited for after it
    was there and died."""


@dataclass(slots=True)
class Negotiated:
    """Which mode worked, so that the next process of the same server is opened in it at once."""

    modes: dict[str, Mode] = field(default_factory=dict[str, Mode])


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
