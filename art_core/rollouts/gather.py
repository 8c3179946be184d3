"""Running many rollouts at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, TypeVar, cast, overload

from art_core.errors import ConfigError, TrajectoryError
from art_core.rollouts.attempts import Limits, attempt, close_unstarted, failure_of, together
from art_core.rollouts.failures import Failures
from art_core.rollouts.progress import Tally, Watcher, shown
from art_core.trajectories import PendingGroup, PendingRollout, Trajectory, TrajectoryGroup

logger = logging.getLogger(__name__)
T = TypeVar("T")

AfterEach = Callable[[TrajectoryGroup], Awaitable[TrajectoryGroup | list[TrajectoryGroup] | None]]


async def gather_trajectory_groups(
    groups: Iterable[Awaitable[TrajectoryGroup] | PendingGroup],
    *,
    pbar_desc: str | None = "gather",
    pbar_total_completion_tokens: bool = True,
    max_exceptions: int | float = 0,
    max_metrics: int | None = None,
    after_each: AfterEach | None = None,
    concurrency: int | None = None,
    timeout: float | None = None,
    retries: int = 0,
) -> list[TrajectoryGroup]:
    """Run the rollouts of groups: ``TrajectoryGroup(rollout(s) for _ in range(8))`` for each.

    Groups come back in their order. A failed rollout is logged with its traceback and
    kept (an exception among its group's exceptions, a failed trajectory as it is), as
    long as no more than ``max_exceptions`` (a number, or as a float a share of all
    rollouts) fail. If the gather is cancelled or stops, so do all its rollouts.

    Args:
        groups: from coroutines, or (to be retried) functions without parameters that
            return one. A coroutine that returns a whole group is taken as one rollout.
        pbar_desc: what the progress bar is called; None: no bar.
        pbar_total_completion_tokens: show the tokens sampled so far.
        max_metrics: most of the trajectories' own metrics shown; None: all.
        after_each: given each group as it is complete; returns the group to keep, or a
            list of groups, or None to drop it.
        concurrency: most rollouts at once; None: all.
        timeout: seconds for each rollout.
        retries: how often a failed rollout is played again.

    Raises:
        TooManyFailuresError: more rollouts failed than allowed, or all did.
        TrajectoryError: a rollout returned something else than a trajectory.
        ConfigError: a limit can't be used.
    """
    pending = [group if isinstance(group, PendingGroup) else _OneGroup(group) for group in groups]
    total = sum(len(group.rollouts) for group in pending)
    tally = Tally(max_metrics=max_metrics, show_tokens=pbar_total_completion_tokens)
    limits = Limits(concurrency=concurrency, timeout=timeout, retries=retries)
    with shown(pbar_desc, total, tally) as watcher:
        gatherer = Gatherer(limits, Failures(total, max_exceptions), watcher)
        return await gatherer.groups(pending, after_each)


@overload
async def gather_trajectories(
    trajectories: Iterable[PendingRollout],
    *,
    pbar_desc: str | None = "gather",
    pbar_total_completion_tokens: bool = True,
    max_exceptions: Literal[0] = 0,
    concurrency: int | None = None,
    timeout: float | None = None,
    retries: int = 0,
) -> list[Trajectory]: ...
@overload
async def gather_trajectories(
    trajectories: Iterable[PendingRollout],
    *,
    pbar_desc: str | None = "gather",
    pbar_total_completion_tokens: bool = True,
    max_exceptions: int | float,
    concurrency: int | None = None,
    timeout: float | None = None,
    retries: int = 0,
) -> list[Trajectory | BaseException]: ...
async def gather_trajectories(
    trajectories: Iterable[PendingRollout],
    *,
    pbar_desc: str | None = "gather",
    pbar_total_completion_tokens: bool = True,
    max_exceptions: int | float = 0,
    concurrency: int | None = None,
    timeout: float | None = None,
    retries: int = 0,
) -> list[Trajectory] | list[Trajectory | BaseException]:
    """Run rollouts; their trajectories in order, exceptions in the place of failed ones.

    Parameters and errors are those of `gather_trajectory_groups`.
    """
    rollouts = list(trajectories)
    limits = Limits(concurrency=concurrency, timeout=timeout, retries=retries)
    tally = Tally(show_tokens=pbar_total_completion_tokens)
    with shown(pbar_desc, len(rollouts), tally) as watcher:
        gatherer = Gatherer(limits, Failures(len(rollouts), max_exceptions), watcher)
        return cast("list[Trajectory | BaseException]", await gatherer.rollouts(rollouts))


class Gatherer:
    """Runs rollouts under common limits, telling a watcher of each."""

    def __init__(self, limits: Limits, failures: Failures, watcher: Watcher) -> None:
        self._limits = limits
        self._failures = failures
        self._watcher = watcher
        self._slots: AbstractAsyncContextManager[object] = (
            contextlib.nullcontext()
            if limits.concurrency is None
            else asyncio.Semaphore(limits.concurrency)
        )

    async def groups(
        self, pending: Sequence[PendingGroup | _OneGroup], after_each: AfterEach | None = None
    ) -> list[TrajectoryGroup]:
        """The groups in order; see `gather_trajectory_groups`."""
        rollouts = [rollout for group in pending for rollout in group.rollouts]
        self._check_retries(rollouts)
        try:
            gathered = await together(self._group(group, after_each) for group in pending)
        finally:
            close_unstarted(rollouts)
        self._report()
        return [group for groups in gathered for group in groups]

    async def rollouts(self, rollouts: Sequence[PendingRollout]) -> list[Trajectory | Exception]:
        """What became of each, in order."""
        self._check_retries(rollouts)
        try:
            results = await together(self._rollout(rollout) for rollout in rollouts)
        finally:
            close_unstarted(rollouts)
        self._report()
        return results

    async def _group(
        self, pending: PendingGroup | _OneGroup, after_each: AfterEach | None
    ) -> list[TrajectoryGroup]:
        if isinstance(pending, _OneGroup):
            group = await self._whole_group(pending)
        else:
            group = pending.finished(await together(map(self._rollout, pending.rollouts)))
        if group is None or after_each is None:
            return [] if group is None else [group]
        kept = await after_each(group)
        if isinstance(kept, TrajectoryGroup):
            return [kept]
        return kept or []

    async def _rollout(self, rollout: PendingRollout) -> Trajectory | Exception:
        try:
            async with self._slots:
                trajectory = _checked(await attempt(rollout, self._limits), Trajectory)
                trajectory.check_contents()
        except Exception as error:  # noqa: BLE001  (what the user's code may raise has no bounds)
            return self._failed(error)
        if (failure := failure_of(trajectory)) is not None:
            self._failed(failure)
        else:
            self._watcher.rollout(trajectory)
        return trajectory

    async def _whole_group(self, pending: _OneGroup) -> TrajectoryGroup | None:
        try:
            async with self._slots:
                found = await attempt(pending.rollouts[0], self._limits)
                group = _checked(found, TrajectoryGroup)
                for trajectory in group.trajectories:
                    trajectory.check_contents()
        except Exception as error:  # noqa: BLE001  (as above)
            self._failed(error)
            return None
        for trajectory in group.trajectories:
            self._watcher.rollout(trajectory)
        return group

    def _check_retries(self, rollouts: Sequence[object]) -> None:
        if self._limits.retries and not all(callable(rollout) for rollout in rollouts):
            close_unstarted(rollouts)
            raise ConfigError(
                f"retries is {self._limits.retries} and there are coroutines, which run only once",
                "Pass functions: functools.partial(rollout, model, scenario).",
            )

    def _failed(self, error: Exception) -> Exception:
        self._watcher.failure()
        self._failures.add(error)
        return error

    def _report(self) -> None:
        summary = self._failures.summary()
        if summary is not None:
            logger.warning(summary)


class _OneGroup:
    """A coroutine that returns a whole group."""

    def __init__(self, group: Awaitable[TrajectoryGroup]) -> None:
        self.rollouts = [group]


def _checked(result: object, kind: type[T]) -> T:
    if isinstance(result, kind):
        return result
    raise TrajectoryError(
        f"a rollout returned {result!r:.200} ({type(result).__name__})",
        f"It must return a {kind.__name__}.",
    )
