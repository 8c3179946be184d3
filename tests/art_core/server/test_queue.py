"""The queue alone: turns, positions, and what outlives a process that was killed.

What a step does is not the queue's business, so a function stands for the training.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from art_core.backends.remote_api import GroupRef, JobView, StepRequest
from art_core.errors import ConfigError, StorageError, TrainingError
from art_core.server.jobs import Job, JobStore
from art_core.server.queue import Result, TrainQueue


def request(name: str) -> StepRequest:
    return StepRequest(groups=[GroupRef(id=name, trajectories=[])])


class Trainer:
    """Notes what it is given; each step waits to be let through."""

    def __init__(self) -> None:
        self.trained: list[str] = []
        self.gate = asyncio.Semaphore(0)
        self.fail = False

    async def __call__(self, job: Job) -> Result:
        self.trained.append(job.request.groups[0].id)
        await self.gate.acquire()
        if self.fail:
            raise TrainingError("it went wrong", "Try again.")
        return len(self.trained), {"loss": 0.5}


async def last(queue: TrainQueue, job: Job) -> JobView:
    views = [view async for view in queue.events(job) if view is not None]
    return views[-1]


async def test_projects_take_turns_and_positions_say_so(tmp_path: Path) -> None:
    store, trainer = JobStore(tmp_path / "jobs.sqlite"), Trainer()
    queue = TrainQueue(store, trainer)
    views = [await queue.submit("big", "bot", f"b{n}", request(f"b{n}")) for n in range(4)]
    views += [await queue.submit("small", "bot", "s0", request("s0"))]
    assert [view.position for view in views] == [0, 1, 2, 3, 1]
    now = [await asyncio.to_thread(store.get, "big", view.id) for view in views[:4]]
    assert [queue.view(job).position for job in now if job] == [0, 2, 3, 4]
    queue.start()
    trainer.gate = asyncio.Semaphore(100)
    for project, view in zip(["big"] * 4 + ["small"], views, strict=True):
        job = store.get(project, view.id)
        assert job is not None
        assert (await last(queue, job)).state == "done"
    assert trainer.trained == ["b0", "s0", "b1", "b2", "b3"]
    await queue.stop()
    store.close()


async def test_the_same_key_is_the_same_job(tmp_path: Path) -> None:
    store, trainer = JobStore(tmp_path / "jobs.sqlite"), Trainer()
    queue = TrainQueue(store, trainer)
    queue.start()
    views = await asyncio.gather(
        *(queue.submit("shop", "bot", "key", request("g")) for _ in range(5))
    )
    assert len({view.id for view in views}) == 1
    with pytest.raises(ConfigError, match="was used for a step on other groups"):
        await queue.submit("shop", "bot", "key", request("h"))
    other = await queue.submit("bank", "bot", "key", request("h"))
    assert other.id != views[0].id
    trainer.gate.release()
    trainer.gate.release()
    for project, view in (("shop", views[0]), ("bank", other)):
        job = store.get(project, view.id)
        assert job is not None
        done = await last(queue, job)
        assert (done.state, done.metrics) == ("done", {"loss": 0.5})
    again = await queue.submit("shop", "bot", "key", request("g"))
    assert (again.state, again.step) == ("done", 1)
    assert trainer.trained == ["g", "h"]
    assert store.get("bank", views[0].id) is None
    await queue.stop()
    store.close()


async def test_a_failure_is_told_and_may_be_tried_again(tmp_path: Path) -> None:
    store, trainer = JobStore(tmp_path / "jobs.sqlite"), Trainer()
    trainer.gate, trainer.fail = asyncio.Semaphore(100), True
    queue = TrainQueue(store, trainer)
    queue.start()
    view = await queue.submit("shop", "bot", "key", request("g"))
    job = store.get("shop", view.id)
    assert job is not None
    failed = await last(queue, job)
    assert failed.error is not None
    assert (failed.error.type, failed.error.remedy) == ("TrainingError", "Try again.")
    trainer.fail = False
    again = await queue.submit("shop", "bot", "key", request("g"))
    assert again.id == view.id
    assert (await last(queue, job)).state == "done"
    await queue.stop()
    store.close()


async def test_what_was_accepted_is_trained_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    store, trainer = JobStore(path), Trainer()
    queue = TrainQueue(store, trainer)
    for name in ("a", "b", "c"):
        await queue.submit("shop", "bot", name, request(name))
    queue.start()
    while not trainer.trained:  # noqa: ASYNC110  (a function stands for the training)
        await asyncio.sleep(0.01)
    # The process is killed in the middle of "a": nothing of this queue runs on.
    second, again = JobStore(path), Trainer()
    again.gate = asyncio.Semaphore(100)
    restarted = TrainQueue(second, again)
    restarted.start()
    for job in second.of_project("shop", 10):
        assert (await last(restarted, job)).state == "done"
    assert again.trained == ["a", "b", "c"]
    trainer.gate.release()
    for each, one in ((queue, store), (restarted, second)):
        await each.stop()
        one.close()


def test_a_damaged_queue_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    path.write_bytes(b"SQLite format 3\x00" + b"\x80" * 4000)
    with pytest.raises(StorageError, match=r"jobs.sqlite can't be opened"):
        JobStore(path)
