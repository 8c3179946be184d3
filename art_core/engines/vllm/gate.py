"""A gate that requests pass one by one, and that shuts when all have left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from contextlib import asynccontextmanager


class Gate:
    """May be used from any event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._opened: Future[None] | None = None
        """Unfinished while the gate is shut."""
        self._empty: Future[None] | None = None
        """What waits for the last to leave."""

    @asynccontextmanager
    async def inside(self) -> AsyncGenerator[None]:
        """Wait until the gate is open, and keep it from shutting."""
        while True:
            with self._lock:
                opened = self._opened
                if opened is None:
                    self._inside += 1
                    break
            await asyncio.shield(asyncio.wrap_future(opened))
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0 and self._empty is not None:
                    self._empty.set_result(None)
                    self._empty = None

    async def shut(self) -> None:
        """Let nobody in, and wait until all have left."""
        with self._lock:
            if self._opened is None:
                self._opened = Future()
            if self._inside == 0:
                return
            self._empty = empty = self._empty or Future()
        try:
            await asyncio.shield(asyncio.wrap_future(empty))
        except BaseException:
            self.open()
            raise

    def open(self) -> None:
        """Let everybody in."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.set_result(None)
