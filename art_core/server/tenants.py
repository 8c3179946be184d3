"""Everything that is served: projects, their open rollouts, and the queue."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

from art_core.backends.local import LocalBackend
from art_core.errors import ArtError, LimitExceededError, ServerError, UnknownModelError
from art_core.gateway.thread import ServerThread
from art_core.rollouts import TrainableModel
from art_core.runs import list_runs
from art_core.runs.files import jsonable_metrics
from art_core.server.endpoints import Refusal
from art_core.server.jobs import Job, JobStore
from art_core.server.keys import SERVER_FOLDER, KeyRecord
from art_core.server.meter import Meter
from art_core.server.project import BaseModels, Project
from art_core.server.queue import Result, TrainQueue
from art_core.server.refs import groups_of

_IDLE_ROLLOUT_SECONDS = 3600.0
"""After which a rollout that nobody calls, and nobody closed, is closed."""
_CHORES_SECONDS = 5.0
_RETRY = {"retry-after": "1"}
_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class OpenedRollout:
    project: Project
    model: TrainableModel
    key: KeyRecord
    used_at: float = field(default_factory=time.monotonic)


class Tenants:
    """Of the server's event loop; `open` it before the first request is answered."""

    def __init__(
        self, root: Path, base_models: list[str], host: LocalBackend, meter: Meter
    ) -> None:
        self.root = root
        self.rollouts: dict[str, OpenedRollout] = {}
        self.accepting = False
        self.jobs = JobStore(root / SERVER_FOLDER / "jobs.sqlite")
        self._base_models = base_models
        self._bases = BaseModels(host)
        self._meter = meter
        self._projects: dict[str, Project] = {}
        self._thread: ServerThread | None = None
        self._chores: asyncio.Task[None] | None = None
        self.unreadable: dict[str, str] = {}
        """Runs that can't be served, and why."""

    async def open(self, thread: ServerThread) -> None:
        """Serve the runs that there are, and go on with the queue."""
        self._thread = thread
        self._meter.load()
        listing = await asyncio.to_thread(list_runs, self.root)
        for damaged in listing.damaged:
            _log.error("a run isn't served: %s", damaged)
        for run in listing.runs:
            if run.identity.base_model is not None and run.identity.lora is not None:
                await self._reopen(run.identity.project, run.path)
        self.queue = TrainQueue(self.jobs, self._train)
        self.queue.start()
        self._chores = asyncio.create_task(self._do_chores())
        self.accepting = True

    async def close(self) -> None:
        """Finish the step that is being trained, stop serving, let go of the runs."""
        self.accepting = False
        await self.queue.stop()
        if self._chores is not None:
            self._chores.cancel()
        for project in self._projects.values():
            await project.close()
        await self._bases.close()
        self._meter.save()
        self.jobs.close()

    async def project(self, name: str) -> Project:
        if self._thread is None:
            raise Refusal(503, ServerError("the server is starting"), _RETRY)
        if name not in self._projects:
            self._projects[name] = Project(self.root, name, self._bases, self._thread, self._meter)
        return self._projects[name]

    def projects(self) -> list[Project]:
        return list(self._projects.values())

    def check_accepting(self) -> None:
        """Raises Refusal: 503, the server is starting or stopping; worth another try."""
        if not self.accepting:
            raise Refusal(503, ServerError("the server is starting or stopping"), _RETRY)

    def check_base(self, base_model: str) -> None:
        """Raises UnknownModelError: the server doesn't offer this base model."""
        if base_model not in self._base_models:
            raise UnknownModelError(
                f"this server doesn't offer base model {base_model!r:.200}",
                f"It offers: {', '.join(self._base_models)} (art serve --base-model).",
            )

    def check_tokens(self, key: KeyRecord) -> None:
        self._meter.check_tokens(key)

    async def check_disk(self, key: KeyRecord) -> None:
        await asyncio.to_thread(self._meter.check_disk, key)

    def check_rollouts(self, key: KeyRecord) -> None:
        """Raises LimitExceededError: the key has as many rollouts open as it may."""
        limit = key.limits.rollouts
        opened = sum(each.key.id == key.id for each in self.rollouts.values())
        if limit is not None and opened >= limit:
            error = LimitExceededError(
                f"key {key.name!r} has {opened} rollouts open, of {limit}",
                "Close some, lower the run's concurrency, or have the limit raised.",
            )
            raise Refusal(429, error, _RETRY)

    async def _reopen(self, project: str, path: Path) -> None:
        from art_core.runs import RunReader

        identity = RunReader(path).identity
        try:
            await (await self.project(project)).register(
                TrainableModel(
                    name=identity.model,
                    project=project,
                    base_model=identity.base_model or "",
                    lora=identity.lora or TrainableModel.model_fields["lora"].default,
                )
            )
        except ArtError as error:
            self.unreadable[f"{project}/{identity.model}"] = str(error)
            _log.error("run %s isn't served: %s", path, error)

    async def _train(self, job: Job) -> Result:
        project = await self.project(job.project)
        model = project.model(job.model)
        run = project.run(model)
        ids = [group.id for group in job.request.groups]
        step = run.trained_step(ids)
        if step is None:
            groups = await groups_of(project.backend, model, job.request.groups)
            result = await project.backend.train(model, groups, job.request.config)
            step = result.step
            project.refresh(model)
        rows = await asyncio.to_thread(run.metrics.read)
        metrics = next(row.metrics for row in rows if (row.step, row.split) == (step, "train"))
        return step, jsonable_metrics(metrics)

    async def _do_chores(self) -> None:
        while True:
            await asyncio.sleep(_CHORES_SECONDS)
            try:
                await asyncio.to_thread(self._meter.save)
                await self._close_idle()
            except ArtError as error:
                _log.error("%s", error)

    async def _close_idle(self) -> None:
        now = time.monotonic()
        for rollout_id, opened in list(self.rollouts.items()):
            if now - opened.used_at > _IDLE_ROLLOUT_SECONDS:
                del self.rollouts[rollout_id]
                await opened.project.backend.close_rollout(opened.model, rollout_id)
