"""Trains queued steps one at a time, fair between projects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from art_core.backends.remote_api import ErrorBody, JobView, StepRequest
from art_core.errors import ArtError
from art_core.server.jobs import Job, JobStore

Result = tuple[int, Mapping[str, float | None]]
"""The step that was done, and its metrics."""
Train = Callable[[Job], Awaitable[Result]]

_HEARTBEAT_SECONDS = 10.0
_log = logging.getLogger(__name__)


class TrainQueue:
    """Projects take turns; inside a project the first to come is trained first.

    Of one event loop. Jobs that were waiting or being trained when the server was
    killed are in the queue from the start.
    """

    def __init__(self, store: JobStore, train: Train) -> None:
        self._store = store
        self._train = train
        self._turns: deque[str] = deque()
        """Projects with waiting jobs, the next one first."""
        self._waiting: dict[str, deque[Job]] = {}
        self._running: Job | None = None
        self._started = 0.0
        self._changed = asyncio.Event()
        self._stopping = False
        self._worker: asyncio.Task[None] | None = None
        for job in store.waiting():
            self._add(job)

    def start(self) -> None:
        self._worker = asyncio.create_task(self._work())

    async def submit(self, project: str, model: str, key: str, request: StepRequest) -> JobView:
        """See `JobStore.submit`."""
        job = await asyncio.to_thread(self._store.submit, project, model, key, request)
        known = {each.id for jobs in self._waiting.values() for each in jobs}
        running = self._running is not None and self._running.id == job.id
        if job.state == "queued" and job.id not in known and not running:
            self._add(job)
            self._tell()
        return self.view(job)

    def view(self, job: Job) -> JobView:
        running = self._running is not None and self._running.id == job.id
        return JobView(
            id=job.id,
            model=job.model,
            state="running" if running and job.state == "queued" else job.state,
            position=self._position(job),
            seconds=time.monotonic() - self._started if running else None,
            step=job.step,
            metrics=None if job.metrics is None else dict(job.metrics),
            error=job.error,
        )

    async def events(self, job: Job) -> AsyncIterator[JobView | None]:
        """How the job stands, each time that changes, until it is over; None: nothing new."""
        last: JobView | None = None
        while True:
            changed = self._changed
            found = await asyncio.to_thread(self._store.get, job.project, job.id)
            view = self.view(found or job)
            yield view if view != last else None
            if view.state in ("done", "failed") or self._stopping:
                return
            last = view
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), _HEARTBEAT_SECONDS)

    async def stop(self) -> None:
        """Finish the step that is being trained; what waits is trained after the next start."""
        self._stopping = True
        self._tell()
        if self._worker is not None:
            await self._worker

    async def _work(self) -> None:
        while not self._stopping:
            job = self._next()
            if job is None:
                await self._changed.wait()
                continue
            self._running, self._started = job, time.monotonic()
            try:
                await asyncio.to_thread(self._store.start, job)
                self._tell()
                await self._train_one(job)
            except ArtError:
                _log.exception("job %s is left as it is until the next start", job.id)
            finally:
                self._running = None
                self._tell()

    async def _train_one(self, job: Job) -> None:
        try:
            step, metrics = await self._train(job)
        except Exception as error:  # noqa: BLE001  (told to the client that asked for the step)
            if not isinstance(error, ArtError):
                _log.error("training step of job %s failed", job.id, exc_info=error)
            await asyncio.to_thread(self._store.failed, job, error_body(error))
        else:
            await asyncio.to_thread(self._store.done, job, step, metrics)

    def _add(self, job: Job) -> None:
        if job.project not in self._waiting:
            self._waiting[job.project] = deque()
            self._turns.append(job.project)
        self._waiting[job.project].append(job)

    def _next(self) -> Job | None:
        if not self._turns:
            return None
        project = self._turns.popleft()
        jobs = self._waiting[project]
        job = jobs.popleft()
        if jobs:
            self._turns.append(project)
        else:
            del self._waiting[project]
        return job

    def _position(self, job: Job) -> int | None:
        """How many steps come before it, as the turns stand."""
        own = [each.id for each in self._waiting.get(job.project, ())]
        if job.id not in own:
            return None
        rank = own.index(job.id)
        turn = self._turns.index(job.project)
        before = rank + (self._running is not None)
        for place, project in enumerate(self._turns):
            if project != job.project:
                before += min(len(self._waiting[project]), rank + (place < turn))
        return before

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def error_body(error: Exception) -> ErrorBody:
    """An exception as clients are told of it."""
    if isinstance(error, ArtError):
        return ErrorBody(type=type(error).__name__, problem=error.problem, remedy=error.remedy)
    return ErrorBody(type="ServerError", problem=f"{type(error).__name__}: {error}")
