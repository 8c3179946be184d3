"""Running one rollout: its time limit, its retries, and an end even if it won't stop."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sysconfig
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from art_core.errors import ConfigError, RolloutError, RolloutTimeoutError
from art_core.trajectories import Trajectory, TrajectoryStatus

logger = logging.getLogger(__name__)
T = TypeVar("T")

_GRACE = 10.0
"""Seconds that a cancelled rollout has to clean up before it is left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a gather allows its rollouts."""

    concurrency: int | None = None
    """Most at once; None: all."""
    timeout: float | None = None
    """Seconds for each attempt; None: no limit."""
    retries: int = 0
    """Further attempts after a failure."""

    def __post_init__(self) -> None:
        if self.concurrency is not None and self.concurrency < 1:
            raise ConfigError(f"concurrency is {self.concurrency!r}", "It must be at least 1.")
        if self.timeout is not None and not self.timeout > 0:
            raise ConfigError(f"timeout is {self.timeout!r}", "It must be above 0, in seconds.")
        if self.retries < 0:
            raise ConfigError(f"retries is {self.retries!r}", "It must be at least 0.")


async def attempt(rollout: Awaitable[T] | Callable[[], Awaitable[T]], limits: Limits) -> T:
    """The result of a rollout; one that is a function is tried again after failures.

    Raises:
        RolloutTimeoutError: the last attempt took too long; says where it waited.
        Exception: what the last attempt raised.
    """
    if not callable(rollout):
        return await within(rollout, limits.timeout)
    for again in range(limits.retries):
        try:
            result = await within(rollout(), limits.timeout)
        except Exception as error:  # noqa: BLE001  (any failure of the user's code is tried again)
            logger.info("attempt %d of a rollout failed: %r", again + 1, error)
        else:
            if (failure := failure_of(result)) is None:
                return result
            logger.info("attempt %d of a rollout failed: %s", again + 1, failure)
    return await within(rollout(), limits.timeout)


def failure_of(result: object) -> RolloutError | None:
    """The failure that a trajectory reports, whose agent's exception an adapter caught."""
    if not isinstance(result, Trajectory) or result.status is not TrajectoryStatus.FAILED:
        return None
    return RolloutError(f"rollout {result.rollout_id} failed:\n{result.error}")


async def within(work: Awaitable[T], timeout: float | None, what: str = "a rollout") -> T:
    """Await ``work`` in a task of its own, for so many seconds at most.

    Raises:
        RolloutTimeoutError: it took longer; it was cancelled, and ended or was left behind.
        RolloutError: it cancelled itself.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=timeout)
    except asyncio.CancelledError:
        await _stop(task)
        raise
    if not task.done():
        where = waiting_at(task)
        await _stop(task)
        raise RolloutTimeoutError(
            f"{what} took more than {timeout:g} s; it was waiting at {where}",
            "Raise the timeout, or give the agent's own calls one.",
        )
    if task.cancelled():
        raise RolloutError(f"{what} was cancelled from inside", "Await the tasks it starts.")
    return task.result()


async def together(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run jobs at once; the results in order.

    If one raises, or this is cancelled, the others are cancelled and have ended
    before it is raised here.
    """
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Await ``work`` to its end, also when this task is cancelled meanwhile (then raise)."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("what had to be finished after a cancellation failed", exc_info=error)
        raise


def close_unstarted(rollouts: Sequence[object]) -> None:
    """Close coroutines that will never run, which Python would warn about."""
    for rollout in rollouts:
        if (
            inspect.iscoroutine(rollout)
            and inspect.getcoroutinestate(rollout) == inspect.CORO_CREATED
        ):
            rollout.close()


def waiting_at(task: asyncio.Future[Any]) -> str:
    """Where a suspended task waits, as ``file:line in function``: the innermost line of
    the user's own code, or if there is none, of any."""
    frames: list[FrameType] = []
    current: Any = task.get_coro() if isinstance(task, asyncio.Task) else None
    while current is not None:
        frame, current = _suspended_frame(current)
        frames += [frame] if frame is not None else []
    if not frames:
        return "a place that can't be seen"
    own = [frame for frame in frames if not _is_library(frame.f_code.co_filename)]
    innermost = (own or frames)[-1]
    code = innermost.f_code
    return f"{Path(code.co_filename).name}:{innermost.f_lineno} in {code.co_qualname}"


def _is_library(filename: str) -> bool:
    paths = sysconfig.get_paths()
    folders = (paths["stdlib"], paths["purelib"], paths["platlib"], str(Path(__file__).parent))
    return filename.startswith(folders)


def _suspended_frame(awaitable: Any) -> tuple[FrameType | None, Any]:
    """The frame of a coroutine or generator, and what it waits for."""
    if inspect.iscoroutine(awaitable):
        return awaitable.cr_frame, awaitable.cr_await
    if inspect.isasyncgen(awaitable):
        return awaitable.ag_frame, awaitable.ag_await
    if inspect.isgenerator(awaitable):
        return awaitable.gi_frame, awaitable.gi_yieldfrom
    return None, None


async def _stop(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=_GRACE)
    if not task.done():
        logger.error(
            "a rollout doesn't end %g s after it was cancelled and is left behind; it waits at %s",
            _GRACE,
            waiting_at(task),
        )
    elif not task.cancelled() and (error := task.exception()) is not None:
        logger.info("a rollout raised while it was cancelled: %r", error)
