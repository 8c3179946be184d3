"""Servers for rollouts: a process for each, a pool of them, or one that all share."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from mcp.shared.exceptions import MCPError

from art_core.errors import ConfigError, ToolServerError, ToolServerStartError
from integrations.mcp.connecting import Negotiated, Timeouts, connect
from integrations.mcp.connection import Answers, Connection
from integrations.mcp.listing import list_tools
from integrations.mcp.sandbox import Sandbox
from integrations.mcp.servers import Server, StdioServer

Isolation = Literal["rollout", "pool", "shared"]
"""``rollout``: processes of their own for each rollout, gone with it. ``pool``: ``size``
sets of processes, each used by one rollout at a time. ``shared``: one set for all at once."""


@dataclass(slots=True)
class Workspace:
    """A set of running servers, as one rollout has it."""

    connections: list[Connection]
    sandbox: Path | None


_ASK_AGAIN = 0.5
"""Seconds between looks for a server that is gone."""

Reset = Callable[[Workspace], Awaitable[None] | None]
"""Brings state that tools change back to what it was; called before each rollout."""


class _Set:
    """The servers of one workspace; started again where one has died."""

    def __init__(self, pool: ServerPool) -> None:
        self._pool = pool
        self._sandbox = None if pool.sandbox is None else Sandbox(pool.sandbox)
        self._starting = asyncio.Lock()
        self.connections: list[Connection] = []

    async def ready(self) -> Workspace:
        """All servers running, state reset."""
        if self._sandbox is not None:
            await asyncio.to_thread(self._sandbox.reset)
        async with self._starting:
            for connection in self.connections:
                await _still_there(connection)
            if not self.connections or not all(one.alive for one in self.connections):
                restarted = sum(not one.alive for one in self.connections)
                await self.close()
                self._pool.restarts += restarted
                await self._start()
        workspace = Workspace(self.connections, self._sandbox and self._sandbox.path)
        if self._pool.reset is not None:
            resetting = self._pool.reset(workspace)
            if inspect.isawaitable(resetting):
                await resetting
        return workspace

    async def _start(self) -> None:
        started = await asyncio.gather(
            *(self._pool.connect(server, self._sandbox) for server in self._pool.servers),
            return_exceptions=True,
        )
        self.connections = [one for one in started if isinstance(one, Connection)]
        failures = [one for one in started if isinstance(one, BaseException)]
        if failures:
            await self.close()
            raise failures[0]

    async def close(self) -> None:
        await asyncio.gather(*(one.close() for one in self.connections))
        self.connections = []

    async def remove(self) -> None:
        await self.close()
        if self._sandbox is not None:
            await asyncio.to_thread(self._sandbox.remove)


class ServerPool:
    """Gives each rollout its running servers. Use it as an async context manager.

    Args:
        servers: one or several.
        isolation: what rollouts share; see `Isolation`.
        size: sets of processes of a ``pool``.
        sandbox: a folder with what the rollouts' files are at their beginning. Each set
            of processes gets a copy, restored before each rollout; ``{sandbox}`` in
            arguments and environment is its path, and processes are started in it. A
            server that keeps files of it open needs ``isolation="rollout"``.
        reset: brings other state (a database, an account) back before each rollout.
        answers: to what servers ask of their client.
        timeouts: for starting servers.

    Raises:
        ConfigError: these don't go together.
    """

    def __init__(
        self,
        servers: Server | Sequence[Server],
        *,
        isolation: Isolation = "rollout",
        size: int = 4,
        sandbox: Path | str | None = None,
        reset: Reset | None = None,
        answers: Answers | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.servers = list(servers) if isinstance(servers, Sequence) else [servers]
        self.isolation: Isolation = isolation
        self.sandbox = None if sandbox is None else Path(sandbox)
        self.reset = reset
        self.restarts = 0
        """Servers that had died and were started again."""
        self._answers = answers
        self._timeouts = timeouts or Timeouts()
        self._negotiated = Negotiated()
        self._missed: dict[str, float] = {}
        """Since when servers behind a URL are gone, by name."""
        self._size = 1 if isolation == "shared" else size
        self._sets: list[_Set] = []
        self._free: asyncio.Queue[_Set] = asyncio.Queue()
        self._probing = asyncio.Lock()
        self._check()

    def _check(self) -> None:
        names = [server.name for server in self.servers]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"servers are named {names}", "Give one or more, with own names.")
        if self._size < 1:
            raise ConfigError(f"size is {self._size}", "It must be at least 1.")
        if self.isolation == "shared" and (self.sandbox or self.reset):
            raise ConfigError(
                "one shared server can't be reset between rollouts: others are using it",
                "Choose isolation='rollout' or 'pool', or leave sandbox and reset out.",
            )
        wanting = [str(server) for server in self.servers if server.wants_sandbox]
        if wanting and self.sandbox is None:
            raise ConfigError(
                f"the server {wanting[0]} uses {{sandbox}}, and there is none",
                "Say which folder to copy: sandbox=…",
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop all servers and remove their sandboxes."""
        sets, self._sets, self._free = self._sets, [], asyncio.Queue()
        await asyncio.gather(*(one.remove() for one in sets))

    @asynccontextmanager
    async def lease(self) -> AsyncGenerator[Workspace]:
        """Running servers for one rollout, their state reset.

        Raises:
            ToolServerStartError: one can't be started or reached.
            ToolServerError: one doesn't list its tools.
        """
        if self.isolation == "rollout":
            own = _Set(self)
            self._sets.append(own)
            try:
                yield await own.ready()
            finally:
                if own in self._sets:  # else the pool was closed meanwhile, and it with it
                    self._sets.remove(own)
                    await own.remove()
            return
        if not self._sets:
            self._sets = [_Set(self) for _ in range(self._size)]
            for one in self._sets:
                self._free.put_nowait(one)
        if self.isolation == "shared":
            yield await self._sets[0].ready()
            return
        taken = await self._free.get()
        try:
            yield await taken.ready()
        finally:
            self._free.put_nowait(taken)

    async def connect(self, server: Server, sandbox: Sandbox | None) -> Connection:
        """A new process or connection; the first one finds out the protocol for all."""
        if server.name in self._negotiated.modes:
            return await self._connect(server, sandbox)
        async with self._probing:
            return await self._connect(server, sandbox)

    async def _connect(self, server: Server, sandbox: Sandbox | None) -> Connection:
        while True:
            try:
                connection = await connect(
                    server,
                    sandbox=None if sandbox is None else sandbox.path,
                    answers=self._answers,
                    timeouts=self._timeouts,
                    negotiated=self._negotiated,
                )
            except ToolServerStartError:
                if not self._may_come_back(server):
                    raise
                await asyncio.sleep(_ASK_AGAIN)
            else:
                self._missed.pop(server.name, None)
                return connection

    def _may_come_back(self, server: Server) -> bool:
        """Whether others may be starting it again, and have had no time yet."""
        if isinstance(server, StdioServer) or server.name not in self._negotiated.modes:
            return False
        since = self._missed.setdefault(server.name, time.monotonic())
        return time.monotonic() - since < self._timeouts.restart


async def _still_there(connection: Connection) -> None:
    """Ask a server that was used before for its tools: whether it is alive shows only so."""
    if not connection.alive:
        return
    try:
        await list_tools(connection.client)
    except MCPError as error:
        if not connection.notice(error):
            raise ToolServerError(
                f"the MCP server {connection.server} doesn't list its tools: {error.message}",
                "Does it run on its own?",
            ) from error
