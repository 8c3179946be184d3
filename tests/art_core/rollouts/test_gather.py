from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from rich.console import Console

from art_core.errors import (
    ConfigError,
    RolloutError,
    RolloutTimeoutError,
    TooManyFailuresError,
    TrajectoryError,
)
from art_core.rollouts import attempts, gather_trajectories, gather_trajectory_groups
from art_core.rollouts.attempts import waiting_at
from art_core.rollouts.progress import ProgressWatcher, Tally, new_progress
from art_core.trajectories import PendingGroup, Trajectory, TrajectoryGroup

quietly = functools.partial(gather_trajectory_groups, pbar_desc=None)


async def rollout(reward: float, seconds: float = 0.0) -> Trajectory:
    await asyncio.sleep(seconds)
    return Trajectory(reward=reward, metrics={"turns": 2})


async def failing(message: str = "no luck") -> Trajectory:
    raise ValueError(message)


async def hanging() -> Trajectory:
    await asyncio.Event().wait()  # the line that a time-out names
    raise AssertionError


def rewards(groups: list[TrajectoryGroup]) -> list[list[float | None]]:
    return [[trajectory.reward for trajectory in group] for group in groups]


async def test_groups_of_coroutines_come_back_in_order() -> None:
    groups = await quietly(
        TrajectoryGroup((rollout(10 * g + r, 0.02 - 0.01 * r) for r in range(2)), metadata={"g": g})
        for g in range(3)
    )
    assert rewards(groups) == [[0, 1], [10, 11], [20, 21]]
    assert [group.metadata for group in groups] == [{"g": 0}, {"g": 1}, {"g": 2}]


async def test_a_group_of_coroutines_can_simply_be_awaited() -> None:
    pending = TrajectoryGroup([rollout(1.0), failing(), functools.partial(rollout, 2.0)])
    assert isinstance(pending, PendingGroup)
    group = await pending
    assert rewards([group]) == [[1.0, 2.0]]
    assert [error.message for error in group.exceptions] == ["no luck"]


async def test_finished_trajectories_may_stand_among_coroutines() -> None:
    items: list[Trajectory | Awaitable[Trajectory]] = [Trajectory(reward=0.5), rollout(1.0)]
    pending = TrajectoryGroup(items)
    (group,) = await quietly([pending])
    assert rewards([group]) == [[0.5, 1.0]]


async def test_a_coroutine_may_return_a_whole_group() -> None:
    async def whole(reward: float) -> TrajectoryGroup:
        return TrajectoryGroup([await rollout(reward)])

    assert rewards(await quietly([whole(1.0), whole(2.0)])) == [[1.0], [2.0]]

    async def broken() -> TrajectoryGroup:
        raise KeyError("k")

    assert rewards(await quietly([broken(), whole(2.0)], max_exceptions=1)) == [[2.0]]


async def test_trajectories_are_gathered_without_groups() -> None:
    found = await gather_trajectories([rollout(1.0, 0.01), rollout(2.0)], pbar_desc=None)
    assert [trajectory.reward for trajectory in found] == [1.0, 2.0]
    mixed = await gather_trajectories([failing(), rollout(2.0)], pbar_desc=None, max_exceptions=1)
    assert [type(item) for item in mixed] == [ValueError, Trajectory]


async def test_after_each_may_change_split_or_drop_a_group() -> None:
    async def after(group: TrajectoryGroup) -> TrajectoryGroup | list[TrajectoryGroup] | None:
        reward = group.trajectories[0].reward
        if reward == 0:
            return None
        return [group, group] if reward == 1 else TrajectoryGroup([Trajectory(reward=9)])

    groups = await quietly([TrajectoryGroup([rollout(r)]) for r in range(3)], after_each=after)
    assert rewards(groups) == [[1], [1], [9]]


async def test_an_error_in_after_each_stops_the_gather() -> None:
    async def after(_: TrajectoryGroup) -> TrajectoryGroup:
        raise KeyError("in after_each")

    with pytest.raises(KeyError, match="in after_each"):
        await quietly(
            [TrajectoryGroup([rollout(1)]), TrajectoryGroup([hanging()])], after_each=after
        )


@pytest.mark.parametrize("limit", [1, 3])
async def test_only_so_many_run_at_once(limit: int) -> None:
    running = most = 0

    async def counted() -> Trajectory:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return Trajectory(reward=0)

    await quietly(
        [TrajectoryGroup(counted() for _ in range(5)) for _ in range(4)], concurrency=limit
    )
    assert most == limit


async def test_a_rollout_that_hangs_is_stopped_and_says_where_it_was() -> None:
    pending = TrajectoryGroup([rollout(1.0), hanging()])
    (group,) = await quietly([pending], timeout=0.05, max_exceptions=1)
    assert rewards([group]) == [[1.0]]
    (error,) = group.exceptions
    assert error.type == "art_core.errors.RolloutTimeoutError"
    line = hanging.__code__.co_firstlineno + 1
    assert f"took more than 0.05 s; it was waiting at test_gather.py:{line} in hanging" in (
        error.message
    )


async def test_where_a_task_waits_is_found_below_libraries() -> None:
    @asynccontextmanager
    async def resource() -> AsyncGenerator[None]:
        yield

    async def agent() -> None:
        async with resource():
            await asyncio.wait_for(asyncio.Event().wait(), None)

    task = asyncio.create_task(agent())
    await asyncio.sleep(0)
    assert re.fullmatch(r"test_gather\.py:\d+ in .*agent", waiting_at(task))
    task.cancel()
    await asyncio.wait({task})
    assert waiting_at(task) == "a place that can't be seen"


async def test_a_rollout_that_will_not_stop_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(attempts, "_GRACE", 0.05)
    release = asyncio.Event()

    async def stubborn() -> Trajectory:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return Trajectory(reward=0)

    with pytest.raises(TooManyFailuresError) as caught:
        await quietly([TrajectoryGroup([stubborn()])], timeout=0.01)
    assert isinstance(caught.value.__cause__, RolloutTimeoutError)
    assert "is left behind; it waits at test_gather.py" in caplog.text
    release.set()
    await asyncio.sleep(0.01)


async def test_a_function_that_fails_is_called_again() -> None:
    calls: list[int] = []

    async def flaky() -> Trajectory:
        calls.append(len(calls))
        if len(calls) < 3:
            raise ConnectionError
        return Trajectory(reward=1)

    (group,) = await quietly([TrajectoryGroup([flaky])], retries=2)
    assert rewards([group]) == [[1]]
    assert len(calls) == 3


async def test_a_coroutine_cannot_be_retried_and_says_so() -> None:
    with pytest.raises(ConfigError, match=r"retries is 1 .*functools\.partial"):
        await quietly([TrajectoryGroup([rollout(1.0)])], retries=1)


@pytest.mark.parametrize(
    ("failed", "allowed", "passes"),
    [
        (1, 0, False),
        (1, 1, True),
        (2, 1, False),
        (2, 0.5, True),
        (3, 0.5, False),
        (3, 1.0, True),
        (4, 1.0, False),
        (4, 100, False),
    ],
)
async def test_so_many_failures_are_put_up_with(
    failed: int, allowed: int | float, passes: bool
) -> None:
    def pending() -> PendingGroup:
        return TrajectoryGroup(failing() if n < failed else rollout(1.0) for n in range(4))

    if passes:
        (group,) = await quietly([pending()], max_exceptions=allowed)
        assert len(group.exceptions) == failed
        return
    with pytest.raises(TooManyFailuresError, match="The first was ValueError: no luck") as caught:
        await quietly([pending()], max_exceptions=allowed)
    assert isinstance(caught.value.__cause__, ValueError)
    if failed == 4:
        assert "4 of 4 rollouts failed: 4 x ValueError; none is left" in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"max_exceptions": -1},
        {"max_exceptions": float("nan")},
        {"max_exceptions": 1.5},
        {"max_exceptions": True},
        {"concurrency": 0},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"retries": -1},
    ],
)
async def test_limits_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    name = next(iter(options))
    with pytest.raises(ConfigError, match=f"{name} is "):
        await quietly([], **options)


async def test_a_rollout_that_returns_something_else_is_a_failure() -> None:
    async def number() -> Any:
        return 1.0

    with pytest.raises(TooManyFailuresError) as caught:
        await quietly([TrajectoryGroup([number()])])
    assert isinstance(caught.value.__cause__, TrajectoryError)
    assert "a rollout returned 1.0 (float)" in str(caught.value.__cause__)


async def test_a_rollout_that_cancels_itself_is_a_failure_not_the_end() -> None:
    async def suicidal() -> Trajectory:
        raise asyncio.CancelledError

    (group,) = await quietly([TrajectoryGroup([suicidal(), rollout(1.0)])], max_exceptions=1)
    assert group.exceptions[0].message.startswith("a rollout was cancelled from inside")
    assert issubclass(RolloutTimeoutError, RolloutError)


async def test_each_kind_of_failure_is_shown_once_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def other() -> Trajectory:
        raise KeyError("k")

    pending = TrajectoryGroup([*(failing(str(n)) for n in range(5)), other(), rollout(1)])
    await quietly([pending], max_exceptions=6)
    shown = [record for record in caplog.records if record.exc_info]
    assert [record.levelno for record in shown] == [logging.WARNING] * 2
    assert caplog.text.count("raise ValueError(message)") == 1
    assert "attempts.py" not in caplog.text, "only the agent's own part of the traceback"
    assert "6 of 7 rollouts failed: 5 x ValueError, 1 x KeyError" in caplog.text


@pytest.mark.parametrize("concurrency", [None, 1])
async def test_cancelling_leaves_nothing_running_and_nothing_unawaited(
    concurrency: int | None,
) -> None:
    cleaned: list[str] = []

    async def tidy() -> Trajectory:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append("tidy")
        raise AssertionError

    groups = [TrajectoryGroup(tidy() for _ in range(2)) for _ in range(2)]
    before = asyncio.all_tasks()
    task = asyncio.create_task(quietly(groups, concurrency=concurrency))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before
    assert len(cleaned) == (concurrency or 4)


async def test_too_many_failures_stop_what_still_runs() -> None:
    ended: list[str] = []

    async def long() -> Trajectory:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("long")
        raise AssertionError

    async def soon(make: Callable[[], Awaitable[Trajectory]]) -> Trajectory:
        await asyncio.sleep(0.01)
        return await make()

    before = asyncio.all_tasks()
    with pytest.raises(TooManyFailuresError):
        await quietly([TrajectoryGroup([long(), soon(failing)]), TrajectoryGroup([long()])])
    assert ended == ["long", "long"]
    assert asyncio.all_tasks() == before


def test_progress_shows_rewards_failures_tokens_and_metrics() -> None:
    console = Console(record=True, force_terminal=True, width=160, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    with console.file, new_progress(console) as progress:
        watcher = ProgressWatcher(
            progress, progress.add_task("gather", total=5, figures=""), Tally(max_metrics=1)
        )
        for reward in (0.0, 0.5, 1.0):
            watcher.rollout(Trajectory(reward=reward, metrics={"turns": 3, "hidden": 1}))
        watcher.failure()
        progress.refresh()
        text = console.export_text()
    assert "gather" in text
    assert "4/5" in text
    assert "reward 0.500 (0 0.5 1) · 1 failed · turns 3" in text
    assert "hidden" not in text


async def test_a_gather_shows_its_progress(capfd: pytest.CaptureFixture[str]) -> None:
    await gather_trajectory_groups([TrajectoryGroup([rollout(1.0)])], pbar_desc="playing")
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "playing" in captured.err
    assert "1/1" in captured.err
