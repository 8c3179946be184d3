from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from art_core.errors import ConfigError
from art_core.rollouts import iterate_dataset, limit_concurrency, retry
from art_core.rollouts.plan import extra_scenarios, planned_scenarios
from art_core.rollouts.play import derive_seed


async def test_retry_calls_a_coroutine_function_again() -> None:
    told: list[tuple[str, int]] = []
    calls = 0

    @retry(
        max_attempts=3,
        delay=0.001,
        exceptions=(ConnectionError,),
        on_retry=lambda error, number: told.append((str(error), number)),
    )
    async def flaky(result: int) -> int:
        """Flaky."""
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ConnectionError(f"no {calls}")
        return result

    assert await flaky(7) == 7
    assert told == [("no 1", 1), ("no 2", 2)]
    assert flaky.__doc__ == "Flaky."


def test_retry_calls_a_function_again_waiting_longer_each_time() -> None:
    times: list[float] = []

    @retry(max_attempts=3, delay=0.02, backoff_factor=3)
    def broken() -> None:
        times.append(time.monotonic())
        raise KeyError("always")

    with pytest.raises(KeyError, match="always"):
        broken()
    first, second, third = times
    assert second - first >= 0.02
    assert third - second >= 0.06


async def test_retry_leaves_other_errors_alone() -> None:
    calls = 0

    @retry(delay=0.001, exceptions=ConnectionError)
    async def broken() -> None:
        nonlocal calls
        calls += 1
        raise KeyError

    with pytest.raises(KeyError):
        await broken()
    assert calls == 1
    with pytest.raises(ConfigError, match="max_attempts is 0"):
        retry(max_attempts=0)


async def test_concurrency_is_limited_by_key() -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    @limit_concurrency(2, derive_key=str)
    async def call(key: str) -> None:
        running[key] += 1
        most[key] = max(most[key], running[key])
        await asyncio.sleep(0.001)
        running[key] -= 1

    await asyncio.gather(*(call(key) for key in "ab" * 5))
    assert most == {"a": 2, "b": 2}
    with pytest.raises(ConfigError, match="limit is 0"):
        limit_concurrency(0)


def test_a_dataset_is_iterated_in_epochs_and_from_any_step() -> None:
    batches = list(iterate_dataset("abcde", groups_per_step=2, num_epochs=2))
    assert [len(batch.items) for batch in batches] == [2, 2, 1, 2, 2, 1]
    assert [(b.epoch, b.step, b.epoch_step) for b in batches] == [
        (0, 0, 0),
        (0, 1, 1),
        (0, 2, 2),
        (1, 3, 0),
        (1, 4, 1),
        (1, 5, 2),
    ]
    played = [item for batch in batches for item in batch.items]
    first, second = played[:5], played[5:]
    assert sorted(first) == sorted(second) == list("abcde")
    assert first != second
    resumed = list(iterate_dataset("abcde", groups_per_step=2, num_epochs=2, initial_step=4))
    assert resumed == batches[4:]
    for items, epoch, step, epoch_step in resumed[:1]:
        assert (items, epoch, step, epoch_step) == tuple(batches[4])
    with pytest.raises(ConfigError, match="0 items"):
        next(iterate_dataset(list[str]()))


def test_the_plan_of_a_step_depends_on_the_seed_alone() -> None:
    plan = [planned_scenarios(5, 3, 7, step) for step in range(1, 6)]
    flat = [index for step in plan for index in step]
    assert sorted(flat[:5]) == sorted(flat[5:10]) == sorted(flat[10:]) == [0, 1, 2, 3, 4]
    assert planned_scenarios(5, 3, 7, 4) == plan[3]
    assert planned_scenarios(5, 3, 8, 1) != plan[0] or planned_scenarios(5, 3, 8, 2) != plan[1]
    extra = extra_scenarios(5, plan[0], 7, 7, 1)
    assert len(extra) == 7
    assert set(extra[:2]).isdisjoint(plan[0]), "new scenarios first"
    assert extra_scenarios(5, plan[0], 2, 7, 1) == extra[:2]


def test_derived_seeds_differ_and_stay_the_same_everywhere() -> None:
    seeds = {derive_seed(s, "train", i, j) for s in range(10) for i in range(10) for j in range(10)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(0, "train", 1, 2) == 4359563225916841325
