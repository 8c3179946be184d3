"""The endpoints of ``/art/v1``."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncIterator
from math import isfinite
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from art_core.backends.remote_api import (
    IDEMPOTENCY_HEADER,
    PREFIX,
    CheckpointView,
    ClosedRolloutView,
    CompletionIds,
    CompletionList,
    JobList,
    JobView,
    LogRequest,
    Metrics,
    MetricsView,
    ModelList,
    ModelView,
    PruneRequest,
    Registration,
    RolloutRequest,
    StepRequest,
    Steps,
    Ticket,
)
from art_core.errors import (
    AccessDeniedError,
    ConfigError,
    ServerError,
    UnknownModelError,
)
from art_core.gateway.http import event
from art_core.rollouts import TrainableModel
from art_core.runs import Retention, check_name
from art_core.runs.files import jsonable_metrics
from art_core.server.endpoints import Call, Endpoint, Refusal
from art_core.server.events import PING, EventResponse
from art_core.server.project import Project
from art_core.server.refs import groups_of
from art_core.server.tenants import OpenedRollout, Tenants

_MODEL = PREFIX + "/projects/{project}/models/{model}"
_KEY = re.compile(r"[A-Za-z0-9_-]{1,200}")
_ROLLOUT = re.compile(r"[0-9a-f]{32}")
_LARGE = 64 * 2**20
_REMEMBERED_TICKETS = 10_000
_JOBS_SHOWN = 100


class Api:
    """Handlers over the tenants and the queue."""

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self._tickets: OrderedDict[tuple[str, str], asyncio.Task[Ticket]] = OrderedDict()

    def endpoints(self) -> list[Endpoint]:
        def model(method: str, path: str, summary: str, handler: Any, **rest: Any) -> Endpoint:
            errors = (404, 409, 422, 507)
            return Endpoint(
                method=method,
                path=_MODEL + path,
                summary=summary,
                handler=handler,
                errors=errors,
                **rest,
            )

        def other(path: str, summary: str, handler: Any, answer: Any) -> Endpoint:
            return Endpoint(
                method="GET",
                path=PREFIX + path,
                summary=summary,
                handler=handler,
                answer=answer,
                errors=(404,),
            )

        return [
            other("/projects/{project}/models", "List models", self.models, ModelList),
            model("PUT", "", "Register", self.register, body=Registration, answer=ModelView),
            model("GET", "", "Show a model", self.show, answer=ModelView),
            model(
                "POST",
                "/rollouts",
                "Open a rollout",
                self.open_rollout,
                body=RolloutRequest,
                answer=Ticket,
                key_header=True,
            ),
            model(
                "DELETE",
                "/rollouts/{rollout}",
                "Close a rollout; again: what it came to",
                self.close_rollout,
                answer=ClosedRolloutView,
            ),
            model(
                "POST",
                "/completions",
                "Fetch completions",
                self.completions,
                body=CompletionIds,
                answer=CompletionList,
            ),
            model(
                "POST",
                "/steps",
                "Queue a training step",
                self.submit,
                body=StepRequest,
                answer=JobView,
                status=202,
                max_body_bytes=_LARGE,
                key_header=True,
            ),
            model(
                "POST",
                "/logs",
                "Keep groups that aren't trained on",
                self.log,
                body=LogRequest,
                answer=Metrics,
                max_body_bytes=_LARGE,
            ),
            model(
                "POST",
                "/checkpoints/prune",
                "Remove checkpoints",
                self.prune,
                body=PruneRequest,
                answer=Steps,
            ),
            other("/jobs", "List training steps", self.jobs, JobList),
            other("/jobs/{job}", "Show a training step", self.job, JobView),
            other("/jobs/{job}/events", "Follow a training step", self.job_events, None),
        ]

    async def models(self, call: Call) -> BaseModel:
        project = await self._project(call)
        views = [await _view(project, model) for model in project.models.values()]
        return ModelList(models=views)

    async def register(self, call: Call) -> BaseModel:
        project = await self._project(call)
        asked = call.body(Registration)
        self._tenants.check_accepting()
        await self._tenants.check_disk(call.key)
        self._tenants.check_base(asked.base_model)
        model = await project.register(
            TrainableModel(
                name=check_name("name", call.param("model")),
                project=project.name,
                base_model=asked.base_model,
                lora=asked.lora,
            )
        )
        return await _view(project, model)

    async def show(self, call: Call) -> BaseModel:
        return await _view(*await self._model(call))

    async def open_rollout(self, call: Call) -> BaseModel:
        project, model = await self._model(call)
        asked = call.body(RolloutRequest)
        memo = (call.key.id, _idempotency_key(call))
        if memo not in self._tickets:
            self._tenants.check_accepting()
            await self._tenants.check_disk(call.key)
            self._tenants.check_tokens(call.key)
            self._tenants.check_rollouts(call.key)
        if memo not in self._tickets:
            task = asyncio.create_task(self._open(call, project, model, asked))
            self._tickets[memo] = task
            if len(self._tickets) > _REMEMBERED_TICKETS:
                self._tickets.popitem(last=False)
        return await self._tickets[memo]

    async def _open(
        self, call: Call, project: Project, model: TrainableModel, asked: RolloutRequest
    ) -> Ticket:
        ticket = await project.backend.open_rollout(
            model, mode=asked.mode, seed=asked.seed, tags=asked.tags
        )
        opened = OpenedRollout(project=project, model=model, key=call.key)
        self._tenants.rollouts[ticket.rollout_id] = opened
        return Ticket(
            rollout_id=ticket.rollout_id,
            api_key=ticket.api_key,
            headers=dict(ticket.headers),
            policy_version=ticket.policy_version,
        )

    async def close_rollout(self, call: Call) -> BaseModel:
        project, model = await self._model(call)
        rollout_id = call.param("rollout")
        if not _ROLLOUT.fullmatch(rollout_id):
            raise ConfigError(f"rollout is {rollout_id!r:.100}", "It is what opening one returned.")
        opened = self._tenants.rollouts.get(rollout_id)
        if opened is not None and opened.project is project and opened.model is model:
            del self._tenants.rollouts[rollout_id]
            return ClosedRolloutView.of(await project.backend.close_rollout(model, rollout_id))
        return ClosedRolloutView.of(await project.backend.recorded(model, rollout_id))

    async def completions(self, call: Call) -> BaseModel:
        project, model = await self._model(call)
        ids = call.body(CompletionIds).ids
        return CompletionList(completions=await project.backend.completions(model, ids))

    async def submit(self, call: Call) -> BaseModel:
        project, model = await self._model(call)
        request = call.body(StepRequest)
        if request.config.kl_adapter is not None:
            raise ConfigError("config.kl_adapter is a path", "Leave it out.")
        key = _idempotency_key(call)
        self._tenants.check_accepting()
        await self._tenants.check_disk(call.key)
        return await self._tenants.queue.submit(project.name, model.name, key, request)

    async def log(self, call: Call) -> BaseModel:
        project, model = await self._model(call)
        body = call.body(LogRequest)
        split = check_name("split", body.split)
        groups = await groups_of(project.backend, model, body.groups)
        run = project.run(model)
        metrics = await asyncio.to_thread(run.log_groups, run.step, split, groups)
        project.refresh(model)
        return Metrics(step=run.step, metrics=jsonable_metrics(metrics))

    async def prune(self, call: Call) -> BaseModel:
        project, model = await self._model(call)
        asked = call.body(PruneRequest)
        retention = Retention(last=asked.last, every=asked.every, best=asked.best)
        return Steps(steps=await asyncio.to_thread(project.prune, model, retention))

    async def jobs(self, call: Call) -> BaseModel:
        queue, store = self._tenants.queue, self._tenants.jobs
        found = await asyncio.to_thread(store.of_project, call.key.project, _JOBS_SHOWN)
        return JobList(jobs=[queue.view(job) for job in found])

    async def job(self, call: Call) -> BaseModel:
        return self._tenants.queue.view(await self._find_job(call))

    async def job_events(self, call: Call) -> Response:
        job = await self._find_job(call)

        async def events() -> AsyncIterator[bytes]:
            async for view in self._tenants.queue.events(job):
                yield PING if view is None else event(view)

        return EventResponse(events())

    async def _find_job(self, call: Call) -> Any:
        job_id = call.param("job")
        store = self._tenants.jobs
        job = await asyncio.to_thread(store.get, call.key.project, job_id)
        if job is None:
            raise Refusal(404, ServerError(f"there is no job {job_id!r:.100}"))
        return job

    async def _project(self, call: Call) -> Project:
        if call.param("project") != call.key.project:
            raise AccessDeniedError(
                f"the key belongs to project {call.key.project!r}, the request to "
                f"{call.param('project')!r:.200}",
                "Give the model the key's project, or use a key of the model's.",
            )
        return await self._tenants.project(call.key.project)

    async def _model(self, call: Call) -> tuple[Project, TrainableModel]:
        project = await self._project(call)
        try:
            return project, project.model(call.param("model"))
        except UnknownModelError:
            check_name("model", call.param("model"))
            raise


def _idempotency_key(call: Call) -> str:
    key = call.request.headers.get(IDEMPOTENCY_HEADER, "")
    if not _KEY.fullmatch(key):
        raise ConfigError(
            f"the header {IDEMPOTENCY_HEADER} is {key!r:.100}",
            "Send 1 to 200 letters, digits, dashes and underscores, new for each new request.",
        )
    return key


async def _view(project: Project, model: TrainableModel) -> ModelView:
    return await asyncio.to_thread(_read_view, project, model)


def _read_view(project: Project, model: TrainableModel) -> ModelView:
    run = project.run(model)
    checkpoints = run.checkpoints.all()
    return ModelView(
        name=model.name,
        run_id=run.identity.run_id,
        base_model=run.identity.base_model or "",
        base_digest=run.identity.base_digest or "",
        lora=model.lora,
        step=checkpoints[-1].step if checkpoints else 0,
        best=project.best(model),
        checkpoints=[
            CheckpointView(
                step=each.step,
                created_at=each.manifest.created_at,
                group_ids=each.manifest.group_ids,
                metrics=each.manifest.metrics,
            )
            for each in checkpoints
        ],
        metrics=[
            MetricsView(
                step=row.step,
                split=row.split,
                metrics={k: v if isfinite(v) else None for k, v in row.metrics.items()},
            )
            for row in run.metrics.read()
        ],
    )
