"""Small helpers for rollouts and loops of one's own."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast

from art_core.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def retry(
    max_attempts: int = 3,
    delay: float = 1.0,
    backoff_factor: float = 2.0,
    exceptions: type[Exception] | tuple[type[Exception], ...] = Exception,
    on_retry: Callable[[Exception, int], None] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Call a function (or coroutine function) again when it raises one of ``exceptions``.

    Waits ``delay`` seconds after the first failure and ``backoff_factor`` times as
    long after each further one; tells ``on_retry`` the exception and the number of
    the attempt that failed. The last failure is raised.
    """
    if max_attempts < 1:
        raise ConfigError(f"max_attempts is {max_attempts}", "It must be at least 1.")

    def pause(error: Exception, failed: int) -> float:
        if on_retry is not None:
            on_retry(error, failed)
        return delay * backoff_factor ** (failed - 1)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        async def again_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            for failed in range(1, max_attempts):
                try:
                    return await cast("Awaitable[Any]", function(*args, **kwargs))
                except exceptions as error:
                    await asyncio.sleep(pause(error, failed))
            return await cast("Awaitable[Any]", function(*args, **kwargs))

        def again(*args: P.args, **kwargs: P.kwargs) -> R:
            for failed in range(1, max_attempts):
                try:
                    return function(*args, **kwargs)
                except exceptions as error:
                    time.sleep(pause(error, failed))
            return function(*args, **kwargs)

        wrapper = again_async if inspect.iscoroutinefunction(function) else again
        return cast("Callable[P, R]", functools.wraps(function)(wrapper))

    return decorate


def limit_concurrency(
    limit: int, derive_key: Callable[..., str] | None = None
) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """Let a coroutine function run at most ``limit`` times at once.

    With ``derive_key``, which is given the call's arguments, at most so many times for each key.
    """
    if limit < 1:
        raise ConfigError(f"limit is {limit}", "It must be at least 1.")

    def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        slots: dict[str, asyncio.Semaphore] = {}

        @functools.wraps(function)
        async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            key = derive_key(*args, **kwargs) if derive_key is not None else ""
            async with slots.setdefault(key, asyncio.Semaphore(limit)):
                return await function(*args, **kwargs)

        return limited

    return decorate


class DatasetBatch(NamedTuple, Generic[T]):
    """The items of one training step."""

    items: list[T]
    epoch: int
    step: int
    """Over all epochs."""
    epoch_step: int


def iterate_dataset(
    dataset: Sequence[T],
    groups_per_step: int = 1,
    num_epochs: int = 1,
    initial_step: int = 0,
    *,
    seed: int = 0,
) -> Iterator[DatasetBatch[T]]:
    """Batches of ``groups_per_step`` items, each item once per epoch, in an order of the seed.

    ``initial_step`` (``await model.get_step()``) leaves out the steps that were
    done; the rest are the same as without it. An epoch's last batch may be smaller.

    Raises:
        ConfigError: the dataset is empty or a number is out of range.
    """
    if not dataset or groups_per_step < 1 or num_epochs < 1 or initial_step < 0:
        raise ConfigError(
            f"iterate_dataset was given {len(dataset)} items, groups_per_step={groups_per_step}, "
            f"num_epochs={num_epochs}, initial_step={initial_step}",
            "There must be items, at least one group per step and one epoch, and no negative step.",
        )
    step = 0
    for epoch in range(num_epochs):
        order = shuffled(len(dataset), seed, epoch)
        for epoch_step, start in enumerate(range(0, len(order), groups_per_step)):
            if step >= initial_step:
                items = [dataset[index] for index in order[start : start + groups_per_step]]
                yield DatasetBatch(items, epoch, step, epoch_step)
            step += 1


def shuffled(length: int, seed: int, epoch: int) -> list[int]:
    """The indices below ``length`` in the order of an epoch."""
    order = list(range(length))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order
