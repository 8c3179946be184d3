"""What a run that is under way waits for, answered from outside of its event loop.

``art runs why`` puts a file into the run directory; a thread of the run sees it and
answers with another. That works while the event loop is blocked, needs no port and no
signal, and who may ask is who may write to the directory.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from art_core.errors import RunError, StorageError
from art_core.rollouts.attempts import waiting_at
from art_core.runs import RunReader, write_whole

logger = logging.getLogger(__name__)
T = TypeVar("T")

QUESTION, ANSWER = "why.ask", "why.json"
_POLL_SECONDS = 0.25
_PATIENCE = 10.0
"""Seconds within which a run answers."""


@dataclass(frozen=True, slots=True, eq=False)
class _Doing:
    what: str
    task: asyncio.Task[Any]
    since: float


class Waiting:
    """Knows what a loop's tasks are doing. Used as a context manager, it answers questions."""

    def __init__(self, run_path: Path) -> None:
        self._question = run_path / QUESTION
        self._answer = run_path / ANSWER
        self._doing: set[_Doing] = set()
        self._beat = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="art-why", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for path in (self._question, self._answer):
            path.unlink(missing_ok=True)

    @contextmanager
    def doing(self, what: str) -> Generator[None]:
        """The current task is doing this while inside."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("not in a task")
        doing = _Doing(what, task, time.monotonic())
        self._doing.add(doing)
        try:
            yield
        finally:
            self._doing.discard(doing)

    async def of(self, what: str, work: Awaitable[T]) -> T:
        """Await ``work``, which is doing this."""
        with self.doing(what):
            return await work

    def report(self) -> dict[str, Any]:
        """What is under way, the longest first, and where each thread is; as JSON."""
        now = time.monotonic()
        return {
            "pid": os.getpid(),
            "loop_blocked_seconds": max(0.0, now - self._beat - _POLL_SECONDS),
            "waiting": [
                {"what": d.what, "seconds": now - d.since, "where": waiting_at(d.task)}
                for d in sorted(self._doing.copy(), key=lambda d: d.since)
            ],
            "threads": _stacks(),
        }

    def _listen(self) -> None:
        while not self._over.wait(_POLL_SECONDS):
            try:
                self._loop.call_soon_threadsafe(self._note_beat)
            except RuntimeError:
                return  # the loop is closed
            if self._question.exists():
                self._reply()

    def _note_beat(self) -> None:
        self._beat = time.monotonic()

    def _reply(self) -> None:
        try:
            write_whole(self._answer, [json.dumps(self.report()).encode()])
            self._question.unlink(missing_ok=True)
        except (StorageError, OSError) as error:
            logger.warning("couldn't say what this run waits for: %s", error)


def ask(run: RunReader, patience: float = _PATIENCE) -> dict[str, Any]:
    """What a running run waits for.

    Raises:
        RunError: it isn't running on this machine, or doesn't answer.
        StorageError: the question can't be put.
    """
    if not run.active:
        raise RunError(
            f"{run.path} isn't running on this machine",
            "Ask where it runs; 'art runs show' shows what it did.",
        )
    answer, question = run.path / ANSWER, run.path / QUESTION
    answer.unlink(missing_ok=True)
    write_whole(question, [b""])
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if answer.exists():
            return json.loads(answer.read_bytes())
        time.sleep(_POLL_SECONDS / 5)
    question.unlink(missing_ok=True)
    raise RunError(
        f"{run.path} doesn't answer within {patience:g} s",
        "It answers while art.train is in it. A process that is stopped, or stuck in a call that "
        "holds Python's lock, can't: look at it with py-spy.",
    )


def _stacks() -> dict[str, str]:
    """Each thread's innermost lines, by its name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return {
        f"{names.get(ident, 'a thread')} ({ident})": "".join(traceback.format_stack(frame)[-4:])
        for ident, frame in sys._current_frames().items()  # pyright: ignore[reportPrivateUsage]
        if ident != threading.get_ident()
    }
