"""`LocalBackend`: engine, gateway and trainer in this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from art_core.backends.choice import EngineChoice
from art_core.backends.prompted import PromptedModels
from art_core.config import SftConfig, StepConfig
from art_core.errors import ConfigError, MissingExtraError
from art_core.rollouts.backend import (
    OnSftProgress,
    RolloutMode,
    RolloutTicket,
    TrainResult,
)
from art_core.rollouts.closed import ClosedRollout
from art_core.rollouts.model import Model, TrainableModel
from art_core.rollouts.prepare import prepare_groups
from art_core.rollouts.prompted import PromptedRollout
from art_core.runs import RunDirectory
from art_core.trajectories import Completion, TrajectoryGroup
from art_core.weights import BaseModelFiles, OnProgress, resolve

if TYPE_CHECKING:
    from art_core.backends.base import Base
    from art_core.backends.trained import TrainedModel
    from art_core.engines.vllm import VllmOptions
    from art_core.gateway import GatewayServer
    from art_core.rollouts.preflight_report import StepCost
    from art_core.sft.reading import ExampleSource
    from art_core.sft.teacher import Teacher

ROOT_VARIABLE = "ART_ROOT"
DEFAULT_ROOT = ".art"
ENGINE_FOLDER = ".vllm"
"""Under the root: logs and adapters of vLLM servers."""
NO_KEY = "none-needed-on-loopback"
"""Clients want a key to send, also where none is asked for."""


class LocalBackend:
    """Serves and trains models on this machine. Use it as ``async with``, or call `close`.

    Args:
        root: the folder of run directories; ``$ART_ROOT`` if not given, else ``.art``.
        host, port: where the gateway listens; port 0 takes a free one.
        api_key: what clients outside rollouts must send; needed on any address that
            isn't loopback.
        device: a torch device, or ``auto``: CUDA, else MPS, else the CPU.
        dtype: of the base weights; ``auto`` is what the device computes fastest.
        engine: ``embedded`` (in this process) or ``vllm`` (a server that is started here,
            watched, and stopped by `close`).
        url: of a vLLM server that runs already, to be used instead of starting one.
        vllm: how the vLLM server is started; see ``docs/vllm.md``.
        deterministic: the engine's outputs don't depend on what else it is serving;
            slower, and only with ``embedded``.
        fresh: move runs that are there already to ``<root>/.archive`` and start anew.
        on_progress: told how far the download of a base model has come.

    Raises:
        ConfigError: the arguments don't go together.
        MissingExtraError: at the first registration, if the extra ``train`` isn't installed,
            or vLLM isn't where it is to be started.
        EngineStartError: likewise, if vLLM can't be started or used; says why.
        PortTakenError: likewise, if something else listens on ``port``.
    """

    def __init__(
        self,
        root: str | Path | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str | None = None,
        device: str = "auto",
        dtype: Literal["auto", "float32", "bfloat16"] = "auto",
        engine: Literal["embedded", "vllm"] = "embedded",
        url: str | None = None,
        vllm: VllmOptions | None = None,
        deterministic: bool = False,
        fresh: bool = False,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.root = Path(root or os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT)
        self._host = host
        self._port = port
        self._api_key = api_key
        self._device = device
        self._dtype: Literal["auto", "float32", "bfloat16"] = dtype
        self._engine = EngineChoice(name=engine, url=url, vllm=vllm, deterministic=deterministic)
        self._fresh = fresh
        self._on_progress = on_progress
        self._gateway: GatewayServer | None = None
        self._bases: dict[str, Base] = {}
        self._models: dict[str, TrainedModel] = {}
        self._runs: dict[tuple[str, str], RunDirectory] = {}
        self._prompted = PromptedModels()
        self._teacher: tuple[tuple[str, Path | None], Teacher] | None = None
        self._registering = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """The gateway's address, without ``/v1``.

        Raises:
            ConfigError: no trainable model is registered yet.
        """
        if self._gateway is None:
            raise ConfigError("the gateway isn't running", "First: await model.register(backend).")
        return self._gateway.url

    async def register(self, model: Model[Any]) -> None:
        """See `Backend.register`."""
        async with self._registering:
            key = (model.project, model.name)
            if key in self._runs:
                raise ConfigError(
                    f"model {model.name!r} of project {model.project!r} is registered already",
                    "Register each model once, and pass the same object on.",
                )
            if not isinstance(model, TrainableModel):
                await self._prompted.add(model)
                self._runs[key] = await asyncio.to_thread(self._open_run, model)
                return
            self._check_name_is_free(model)
            _require_training()
            files = await asyncio.to_thread(
                resolve, model.base_model, on_progress=self._on_progress
            )
            self._runs[key] = run = await asyncio.to_thread(self._open_run, model, files)
            try:
                await self._serve(model, files, run)
            except BaseException:
                del self._runs[key]
                run.close()
                raise

    def run_directory(self, model: Model[Any]) -> RunDirectory:
        """See `Backend.run_directory`."""
        try:
            return self._runs[model.project, model.name]
        except KeyError:
            raise _unregistered(model) from None

    async def open_rollout(
        self,
        model: TrainableModel[Any],
        *,
        mode: RolloutMode,
        seed: int | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> RolloutTicket:
        """See `Backend.open_rollout`."""
        return self._server(model).open_rollout(model.name, mode=mode, seed=seed, tags=tags)

    async def close_rollout(self, model: TrainableModel[Any], rollout_id: str) -> ClosedRollout:
        """See `Backend.close_rollout`."""
        return ClosedRollout.of(await self._server(model).aclose_rollout(rollout_id))

    async def open_prompted(
        self, model: Model[Any], *, tags: Mapping[str, str] | None = None
    ) -> RolloutTicket:
        """See `art_core.rollouts.prompted.ServesPrompted`."""
        return self._prompted.open(model, tags)

    async def close_prompted(self, model: Model[Any], rollout_id: str) -> PromptedRollout:
        """See `art_core.rollouts.prompted.ServesPrompted`."""
        return self._prompted.close_rollout(rollout_id)

    async def completions(
        self, model: TrainableModel[Any], completion_ids: Sequence[str]
    ) -> list[Completion]:
        """See `Backend.completions`."""
        records = self._trained(model).records
        return await asyncio.to_thread(records.by_ids, completion_ids)

    async def train(
        self, model: TrainableModel[Any], groups: Sequence[TrajectoryGroup], config: StepConfig
    ) -> TrainResult:
        """See `Backend.train`."""
        trained = self._trained(model)
        trainable = await prepare_groups(self, model, groups)
        return await trained.train(trainable, config, played=groups)

    async def train_sft(
        self,
        model: TrainableModel[Any],
        examples: ExampleSource,
        config: SftConfig | None = None,
        *,
        validation: ExampleSource | None = None,
        on_progress: OnSftProgress | None = None,
    ) -> TrainResult:
        """Learn from conversations: one step of the run, with a checkpoint like any other.

        Stopped or killed, it goes on from its last saved update when it's called again.

        Args:
            examples: a ``.jsonl`` file, or dictionaries, trajectories and groups.
            validation: likewise, to measure the loss on before, and after each epoch.
            on_progress: told of each update, instead of a bar.

        Raises:
            ExampleError: examples that can't be learned from; names the lines.
            RunMismatchError: an unfinished one was begun with other examples or settings.
        """
        trained = self._trained(model)
        return await trained.train_sft(examples, validation, config or SftConfig(), on_progress)

    async def distil(
        self,
        model: TrainableModel[Any],
        groups: Sequence[TrajectoryGroup],
        teacher: str,
        config: StepConfig | None = None,
        *,
        teacher_adapter: Path | None = None,
    ) -> TrainResult:
        """One step of on-policy distillation: each sampled token is marked by a local teacher.

        Rewards don't matter. The step goes down the reverse KL divergence from the policy
        to the teacher (see `art_core.sft.teacher`).

        Args:
            teacher: a base model with the policy's vocabulary.
            teacher_adapter: folder of a PEFT adapter of it.

        Raises:
            ConfigError: the teacher has another vocabulary, or isn't there.
            TrajectoryError: a group was trained on before, or nothing was recorded.
        """
        trained = self._trained(model)
        opened = await asyncio.to_thread(self._open_teacher, teacher, teacher_adapter)
        return await trained.distil(groups, opened, config or StepConfig())

    async def log(
        self, model: Model[Any], groups: Sequence[TrajectoryGroup], *, split: str
    ) -> None:
        """See `Backend.log`."""
        run = self.run_directory(model)
        await asyncio.to_thread(run.log_groups, run.step, split, groups)

    async def measure_step(
        self, model: TrainableModel[Any], group: TrajectoryGroup, config: StepConfig
    ) -> StepCost:
        """See `art_core.rollouts.preflight.MeasuresSteps`."""
        return await self._trained(model).measure(group, config)

    async def get_step(self, model: TrainableModel[Any]) -> int:
        """See `Backend.get_step`."""
        return self.run_directory(model).step

    async def close(self) -> None:
        """Stop serving, finish a training step that is under way, let go of the runs."""
        models, self._models = self._models, {}
        runs, self._runs = self._runs, {}
        bases, self._bases = self._bases, {}
        gateway, self._gateway = self._gateway, None
        await self._prompted.stop()
        if gateway is not None:
            await asyncio.to_thread(gateway.stop)
        for trained in models.values():
            await trained.close()
        for base in bases.values():
            await base.engine.close()
        for run in runs.values():
            run.close()

    async def _serve(
        self, model: TrainableModel[Any], files: BaseModelFiles, run: RunDirectory
    ) -> None:
        from art_core.backends.trained import TrainedModel

        base = await self._open_base(files, lora_rank=model.lora.rank)
        gateway = self._open_gateway()
        trained = TrainedModel(model, base, run, gateway)
        try:
            await trained.serve()
        except BaseException:
            await trained.close()
            raise
        self._models[model.name] = trained
        model.inference_base_url = f"{gateway.url}/v1"
        model.inference_api_key = self._api_key or NO_KEY
        model.inference_model_name = model.name

    async def _open_base(self, files: BaseModelFiles, *, lora_rank: int) -> Base:
        from art_core.backends.base import Base

        if files.digest not in self._bases:
            self._bases[files.digest] = await asyncio.to_thread(
                Base.open,
                files,
                dtype=self._dtype,
                device=self._device,
                engine=self._engine,
                lora_rank=lora_rank,
                folder=self.root / ENGINE_FOLDER,
            )
        return self._bases[files.digest]

    def _open_teacher(self, spec: str, adapter: Path | None) -> Teacher:
        """The newest one is kept: a loop asks for the same one in each step."""
        from art_core.sft.teacher import Teacher
        from art_core.weights.loading import load

        files = resolve(spec, on_progress=self._on_progress)
        key = (files.digest, adapter)
        if self._teacher is None or self._teacher[0] != key:
            base = self._bases.get(files.digest)
            weights = base.weights if base else load(files, dtype=self._dtype, device=self._device)
            self._teacher = (key, Teacher(weights, adapter))
        return self._teacher[1]

    def _open_gateway(self) -> GatewayServer:
        from art_core.gateway import GatewayServer

        if self._gateway is None:
            gateway = GatewayServer(host=self._host, port=self._port, api_key=self._api_key)
            gateway.start()
            self._gateway = gateway
        return self._gateway

    def _open_run(self, model: Model[Any], files: BaseModelFiles | None = None) -> RunDirectory:
        return RunDirectory.open(
            self.root,
            project=model.project,
            model=model.name,
            base_model=files.name if files else None,
            base_digest=files.digest if files else None,
            lora=model.lora if isinstance(model, TrainableModel) else None,
            fresh=self._fresh,
        )

    def _check_name_is_free(self, model: TrainableModel[Any]) -> None:
        if model.name in self._models:
            taken = self._models[model.name].run.identity.project
            raise ConfigError(
                f"name {model.name!r} is served already, for project {taken!r}",
                "The gateway knows models by name: give this one another.",
            )

    def _trained(self, model: TrainableModel[Any]) -> TrainedModel:
        trained = self._models.get(model.name)
        if trained is None or trained.run is not self._runs.get((model.project, model.name)):
            raise _unregistered(model)
        return trained

    def _server(self, model: TrainableModel[Any]) -> GatewayServer:
        self._trained(model)
        if self._gateway is None:
            raise _unregistered(model)
        return self._gateway


def _unregistered(model: Model[Any]) -> ConfigError:
    return ConfigError(
        f"model {model.name!r} of project {model.project!r} isn't registered with this backend",
        "First: await model.register(backend).",
    )


def _require_training() -> None:
    """Say what to install before anything else fails for the lack of it."""
    from importlib.util import find_spec

    needed = ("torch", "transformers", "peft", "safetensors")
    missing = [package for package in needed if find_spec(package) is None]
    if missing:
        raise MissingExtraError(
            f"LocalBackend needs {', '.join(missing)}", "Install: pip install 'art-core[train]'."
        )
