"""`RemoteBackend`: the agents run here, engine and trainer on an ``art serve`` elsewhere."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import uuid4

import httpx

from art_core.backends.remote_api import (
    PREFIX,
    ClosedRolloutView,
    CompletionIds,
    CompletionList,
    GroupRef,
    JobView,
    LogRequest,
    Metrics,
    ModelView,
    PruneRequest,
    Registration,
    RolloutRequest,
    StepRequest,
    Steps,
    Ticket,
)
from art_core.backends.remote_client import RemoteClient, as_exception, error_of
from art_core.backends.remote_run import RemoteRun, finite
from art_core.config import StepConfig
from art_core.errors import ConfigError, ServerError
from art_core.rollouts.backend import LOOPBACK, RolloutMode, RolloutTicket, TrainResult
from art_core.rollouts.closed import ClosedRollout
from art_core.rollouts.model import Model, TrainableModel
from art_core.rollouts.prepare import check_scored, describe
from art_core.runs import Retention, RunDirectory
from art_core.trajectories import Completion, TrajectoryGroup, TrajectoryStatus

ROOT_VARIABLE = "ART_ROOT"
DEFAULT_ROOT = ".art"


class RemoteBackend:
    """Serves and trains models on a server. Use it as ``async with``, or call `close`.

    Completions stay on the server: what travels is ids, rewards and metadata, and
    the conversations' messages for you to read and grade. It needs no torch.

    Args:
        url: of the server, ``http://gpu-box:7999``.
        api_key: made by ``art keys create``; it belongs to one project.
        root: the folder of this side's run directories (settings, journal, metrics and
            plots, no weights); ``$ART_ROOT`` if not given, else ``.art``.
        fresh: move run directories that are here already to ``<root>/.archive``.
        patience: seconds for which a server that can't be reached is waited for.

    Raises:
        ConfigError: the URL or key can't be used.
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        *,
        root: str | Path | None = None,
        fresh: bool = False,
        patience: float = 300.0,
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ConfigError(f"url is {url!r}", "Give the server's, such as http://gpu-box:7999.")
        if not api_key or not api_key.isascii() or not api_key.isprintable():
            raise ConfigError("api_key is empty or has odd characters", "See 'art keys create'.")
        self.root = Path(root or os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)
        self._api_key = api_key
        self._fresh = fresh
        self._client = RemoteClient(url, api_key, patience)
        self._runs: dict[tuple[str, str], RunDirectory] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """The server's address, without ``/v1``."""
        return self._client.url

    async def register(self, model: Model[Any]) -> None:
        """See `Backend.register`. A plain `Model` gets a run directory on this side only."""
        if (model.project, model.name) in self._runs:
            raise ConfigError(
                f"model {model.name!r} of project {model.project!r} is registered already",
                "Register each model once, and pass the same object on.",
            )
        if not isinstance(model, TrainableModel):
            self._runs[model.project, model.name] = await asyncio.to_thread(
                RunDirectory.open,
                self.root,
                project=model.project,
                model=model.name,
                fresh=self._fresh,
            )
            return
        view = await self._client.call(
            ModelView,
            "PUT",
            "projects",
            model.project,
            "models",
            model.name,
            body=Registration(base_model=model.base_model, lora=model.lora),
        )
        run = await asyncio.to_thread(
            RemoteRun.mirror,
            self.root,
            project=model.project,
            lora=model.lora,
            view=view,
            fresh=self._fresh,
        )
        run.prune_there = lambda retention: self._prune(model, retention)
        self._runs[model.project, model.name] = run
        model.inference_base_url = f"{self.url}/v1"
        model.inference_api_key = self._api_key
        model.inference_model_name = model.name

    def run_directory(self, model: Model[Any]) -> RunDirectory:
        """See `Backend.run_directory`: this side's."""
        try:
            return self._runs[model.project, model.name]
        except KeyError:
            raise ConfigError(
                f"model {model.name!r} of project {model.project!r} isn't registered with this "
                "backend",
                "First: await model.register(backend).",
            ) from None

    async def open_rollout(
        self,
        model: TrainableModel[Any],
        *,
        mode: RolloutMode,
        seed: int | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> RolloutTicket:
        """See `Backend.open_rollout`."""
        ticket = await self._client.call(
            Ticket,
            "POST",
            *self._path(model, "rollouts"),
            body=RolloutRequest(mode=mode, seed=seed, tags=dict(tags or {})),
            key=uuid4().hex,
        )
        return RolloutTicket(
            rollout_id=ticket.rollout_id,
            base_url=f"{self.url}/r/{ticket.rollout_id}/v1",
            api_key=ticket.api_key,
            headers=ticket.headers,
            policy_version=ticket.policy_version,
        )

    async def close_rollout(self, model: TrainableModel[Any], rollout_id: str) -> ClosedRollout:
        """See `Backend.close_rollout`; the histories have no tokens."""
        path = self._path(model, "rollouts", rollout_id)
        return (await self._client.call(ClosedRolloutView, "DELETE", *path)).closed()

    async def completions(
        self, model: TrainableModel[Any], completion_ids: Sequence[str]
    ) -> list[Completion]:
        """See `Backend.completions`: the one call that fetches tokens and logprobs."""
        path = self._path(model, "completions")
        body = CompletionIds(ids=list(completion_ids))
        return (await self._client.call(CompletionList, "POST", *path, body=body)).completions

    async def train(
        self, model: TrainableModel[Any], groups: Sequence[TrajectoryGroup], config: StepConfig
    ) -> TrainResult:
        """See `Backend.train`. Waits in the server's queue.

        The step is known to the server by the ids of its groups, so that a dropped
        connection, or this program being started anew, never has it trained twice.
        """
        run = self.run_directory(model)
        request = _step_request(run, groups, config)
        key = _idempotency_key(run.identity.run_id, request)
        job = await self._client.call(
            JobView, "POST", *self._path(model, "steps"), body=request, key=key
        )
        job = await self._client.finished(job.id)
        if job.error is not None:
            raise as_exception(job.error)
        if job.step is None or job.metrics is None:
            raise ServerError(f"the server says that job {job.id} is {job.state}, without a step")
        metrics = finite(job.metrics)
        await asyncio.to_thread(
            run.commit, job.step, lambda _: None, groups=groups, metrics=metrics
        )
        return TrainResult(step=job.step, metrics=metrics)

    async def log(
        self, model: Model[Any], groups: Sequence[TrajectoryGroup], *, split: str
    ) -> None:
        """See `Backend.log`: on both sides."""
        run = self.run_directory(model)
        if not isinstance(model, TrainableModel):
            await asyncio.to_thread(run.log_groups, run.step, split, groups)
            return
        body = LogRequest(groups=[GroupRef.of(group) for group in groups], split=split)
        logged = await self._client.call(Metrics, "POST", *self._path(model, "logs"), body=body)
        await asyncio.to_thread(run.trajectories.merge, split, logged.step, groups)
        metrics = finite(logged.metrics)
        await asyncio.to_thread(run.metrics.append, logged.step, split, metrics)

    async def get_step(self, model: TrainableModel[Any]) -> int:
        """See `Backend.get_step`."""
        self.run_directory(model)
        return (await self._client.call(ModelView, "GET", *self._path(model))).step

    async def close(self) -> None:
        """Let go of the run directories; the server goes on serving."""
        runs, self._runs = self._runs, {}
        for run in runs.values():
            run.close()
        await self._client.close()

    def _path(self, model: Model[Any], *more: str) -> tuple[str, ...]:
        self.run_directory(model)
        return ("projects", model.project, "models", model.name, *more)

    def _prune(self, model: Model[Any], retention: Retention) -> None:
        """Blocks: `RunDirectory.prune` isn't awaited."""
        body = PruneRequest(last=retention.last, every=retention.every, best=retention.best)
        path = "/".join((PREFIX, *self._path(model, "checkpoints", "prune")))
        local = urlsplit(self.url).hostname in LOOPBACK
        with httpx.Client(base_url=self.url, timeout=60, trust_env=not local) as http:
            answer = http.post(
                path,
                content=body.model_dump_json(),
                headers={
                    "authorization": f"Bearer {self._api_key}",
                    "content-type": "application/json",
                },
            )
        if answer.status_code != 200:
            raise error_of(answer.status_code, answer.content)
        Steps.model_validate_json(answer.content)


def _step_request(
    run: RunDirectory, groups: Sequence[TrajectoryGroup], config: StepConfig
) -> StepRequest:
    """Raises what can be found wrong on this side: see `prepare_groups`."""
    if not groups:
        raise ConfigError("there are no groups to train on", "Gather at least one.")
    if config.kl_adapter is not None:
        raise ConfigError(
            f"kl_adapter is {config.kl_adapter}, a path on this machine",
            "A server's reference is the base model: leave it out.",
        )
    run.check_untrained(groups)
    for number, group in enumerate(groups):
        for each, trajectory in enumerate(group.trajectories):
            if trajectory.status is not TrajectoryStatus.FAILED:
                title = f"trajectory {each} of group {number}"
                check_scored(trajectory, describe(trajectory, title))
    return StepRequest(
        groups=[GroupRef.of(group) for group in groups],
        config=StepConfig(**{name: getattr(config, name) for name in StepConfig.model_fields}),
    )


def _idempotency_key(run_id: str, request: StepRequest) -> str:
    digest = hashlib.sha256(run_id.encode())
    for group_id in sorted(group.id for group in request.groups):
        digest.update(b"\0" + group_id.encode())
    return digest.hexdigest()
