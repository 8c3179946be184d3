"""One tenant: its own models, records and rollouts, over base models that all share."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.types import ASGIApp

from art_core.backends.base import Base
from art_core.backends.local import LocalBackend
from art_core.engines.protocol import AdapterRef
from art_core.errors import RunMismatchError, UnknownModelError
from art_core.gateway import GatewayServer
from art_core.gateway.thread import ServerThread
from art_core.rollouts import TrainableModel
from art_core.rollouts.closed import ClosedRollout
from art_core.runs import VALIDATION_SPLIT, Retention, RunDirectory
from art_core.runs.retention import best_step
from art_core.server.engine import ProjectEngine
from art_core.server.meter import Meter
from art_core.weights import BaseModelFiles


class ProjectGateway(GatewayServer):
    """A project's gateway, mounted in the server instead of listening itself.

    Checkpoints that are on disk stay on offer when newer ones come.
    """

    def __init__(self, thread: ServerThread, folder: Path) -> None:
        self.secret = secrets.token_hex(32)
        """Stands, inside this process, for the project's API keys."""
        super().__init__(api_key=self.secret)
        self._thread = thread
        self._folder = folder

    @property
    def app(self) -> ASGIApp:
        return self._app

    def has_rollout(self, rollout_id: str) -> bool:
        return self._registry.rollout(rollout_id) is not None

    def unused_versions(self, name: str) -> list[int]:
        """See `GatewayServer.unused_versions`: those whose checkpoint is gone, too."""
        kept = set(_steps_in(self._folder / name))
        return [version for version in self.idle_versions(name) if version not in kept]

    def idle_versions(self, name: str) -> list[int]:
        """Versions that are neither current nor pinned."""
        return super().unused_versions(name)

    def offer(self, name: str, steps: list[int], best: int | None) -> None:
        """Serve checkpoints as ``name@step``, and one of them as ``name:best``."""
        policy = self._registry.policy(name)
        policy.versions = {**{step: AdapterRef(name, step) for step in steps}, **policy.versions}
        policy.best = None if best is None else AdapterRef(name, best)

    def stop(self) -> None:
        """Abandon the calls in flight, and record them; the server's thread goes on."""
        if self._thread is not None:
            self._thread.run(self._abandon_everything())


class BaseModels:
    """Base models in memory, opened once for all projects."""

    def __init__(self, host: LocalBackend) -> None:
        self._host = host
        self._opening = asyncio.Lock()

    async def open(self, files: BaseModelFiles, lora_rank: int) -> Base:
        async with self._opening:
            return await self._host._open_base(files, lora_rank=lora_rank)  # pyright: ignore[reportPrivateUsage]

    async def close(self) -> None:
        await self._host.close()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _SharedBase(Base):
    """A base model as one project sees it."""

    shared: Base

    @asynccontextmanager
    async def training(self) -> AsyncGenerator[None]:
        async with self.shared.training():
            yield


class ProjectBackend(LocalBackend):
    """A `LocalBackend` of one project."""

    def __init__(
        self, root: Path, name: str, bases: BaseModels, thread: ServerThread, meter: Meter
    ):
        super().__init__(root)
        self.name = name
        self.gateway = ProjectGateway(thread, root / name)
        self._gateway = self.gateway
        self._shared_bases = bases
        self._meter = meter

    async def recorded(self, model: TrainableModel, rollout_id: str) -> ClosedRollout:
        """What was recorded of a rollout that isn't open any more."""
        records = self._trained(model).records
        return ClosedRollout.of(await asyncio.to_thread(records.by_rollout, rollout_id))

    async def _open_base(self, files: BaseModelFiles, *, lora_rank: int) -> Base:
        base = await self._shared_bases.open(files, lora_rank)
        if files.digest not in self._bases:
            engine = ProjectEngine(
                base.engine,
                self.name,
                self.root / self.name,
                self.gateway.idle_versions,
                self._meter,
            )
            self._bases[files.digest] = _SharedBase(
                weights=base.weights, engine=engine, chat=base.chat, shared=base
            )
        return self._bases[files.digest]


class Project:
    """The models of a project, by name."""

    def __init__(
        self, root: Path, name: str, bases: BaseModels, thread: ServerThread, meter: Meter
    ) -> None:
        self.name = name
        self.backend = ProjectBackend(root, name, bases, thread, meter)
        self.gateway = self.backend.gateway
        self.models: dict[str, TrainableModel] = {}
        self._registering = asyncio.Lock()

    async def register(self, asked: TrainableModel) -> TrainableModel:
        """Serve a model, or find it served already.

        Raises:
            RunMismatchError: it is served with another base model or adapter shape.
            ArtError: see `LocalBackend.register`.
        """
        async with self._registering:
            model = self.models.get(asked.name)
            if model is None:
                await self.backend.register(asked)
                self.models[asked.name] = model = asked
                self.refresh(model)
        if (model.base_model, model.lora) != (asked.base_model, asked.lora):
            raise RunMismatchError(
                f"model {asked.name!r} of project {self.name!r} is served with base_model = "
                f"{model.base_model!r}, lora = {model.lora!s}; asked for were "
                f"{asked.base_model!r}, {asked.lora!s}",
                "Give the model another name.",
            )
        return model

    def model(self, name: str) -> TrainableModel:
        """Raises UnknownModelError: the project has none of this name."""
        model = self.models.get(name)
        if model is None:
            known = ", ".join(sorted(self.models)) or "none"
            raise UnknownModelError(
                f"project {self.name!r} has no model {name!r:.200}",
                f"Register it first. Models: {known}.",
            )
        return model

    def run(self, model: TrainableModel) -> RunDirectory:
        return self.backend.run_directory(model)

    def best(self, model: TrainableModel) -> int | None:
        run = self.run(model)
        steps = [checkpoint.step for checkpoint in run.checkpoints.all()]
        return best_step(f"{VALIDATION_SPLIT}/reward", run.metrics.read(), steps)

    def refresh(self, model: TrainableModel) -> None:
        """Offer the checkpoints that there are now."""
        steps = [checkpoint.step for checkpoint in self.run(model).checkpoints.all()]
        self.gateway.offer(model.name, steps, self.best(model))

    def prune(self, model: TrainableModel, retention: Retention) -> list[int]:
        """Remove checkpoints; the steps of those that are left."""
        run = self.run(model)
        run.prune(retention)
        self.refresh(model)
        return [checkpoint.step for checkpoint in run.checkpoints.all()]

    async def close(self) -> None:
        await self.backend.close()


def _steps_in(run: Path) -> list[int]:
    return [int(path.name) for path in (run / "checkpoints").glob("[0-9]*")]
