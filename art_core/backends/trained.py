"""One model that a backend serves and trains: its run, its records and its trainer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from art_core.backends.base import Base
from art_core.backends.measure import measure_step
from art_core.backends.warm_start import read_examples
from art_core.config import SftConfig, StepConfig
from art_core.engines.protocol import AdapterRef
from art_core.gateway import GatewayServer, Policy
from art_core.grpo import GRPOTrainer
from art_core.rollouts.attempts import to_its_end
from art_core.rollouts.backend import OnSftProgress, TrainResult
from art_core.rollouts.model import TrainableModel
from art_core.rollouts.preflight_report import StepCost
from art_core.runs import Checkpoint, RunDirectory
from art_core.runs.names import step_name
from art_core.runs.records import RecordStore
from art_core.sft.reading import ExampleSource
from art_core.sft.run import SftRun, remove_progress
from art_core.sft.session import learn, shown
from art_core.sft.teacher import Teacher, distil
from art_core.trajectories import TrajectoryGroup

logger = logging.getLogger(__name__)
RECORDS_FILE = "records.sqlite"
SFT_FOLDER = "sft"


class TrainedModel:
    """Between the run directory (what is true) and the gateway (what is served)."""

    def __init__(
        self, model: TrainableModel[Any], base: Base, run: RunDirectory, gateway: GatewayServer
    ) -> None:
        self.name = model.name
        self.run = run
        self.records = RecordStore(run.path / RECORDS_FILE)
        self._lora = model.lora
        self._base = base
        self._gateway = gateway
        self._trainer: GRPOTrainer | None = None
        self._training = asyncio.Lock()

    async def serve(self) -> None:
        """Offer the newest checkpoint, or the bare base model, under the model's name."""
        latest = self.run.checkpoints.latest()
        adapter: AdapterRef | None = None
        if latest is not None:
            await asyncio.to_thread(latest.verify)
            adapter = AdapterRef(self.name, latest.step)
            await self._base.engine.load_adapter(adapter, latest.path)
        self._gateway.add_policy(
            Policy(
                name=self.name,
                project=self.run.identity.project,
                chat=self._base.chat,
                engine=self._base.engine,
                records=self.records,
                current=adapter,
            )
        )

    async def train(
        self,
        groups: Sequence[TrajectoryGroup],
        config: StepConfig,
        *,
        played: Sequence[TrajectoryGroup],
    ) -> TrainResult:
        """One step: gradient, checkpoint, new adapter live. Once begun it isn't cancelled.

        ``played`` are the same groups with the trajectories that failed: what is kept on disk.
        """
        async with self._training:
            step = asyncio.ensure_future(self._train(groups, config, played))
            try:
                return await asyncio.shield(step)
            except asyncio.CancelledError:
                # The optimizer may have moved already: see the step through, then stop.
                with contextlib.suppress(asyncio.CancelledError):
                    await step
                raise

    async def train_sft(
        self,
        examples: ExampleSource,
        validation: ExampleSource | None,
        config: SftConfig,
        on_progress: OnSftProgress | None,
    ) -> TrainResult:
        """One step on examples; cancelled, it goes on from there the next time."""
        async with self._training:
            with shown(self.name, on_progress) as tell:
                read = await asyncio.to_thread(
                    read_examples, self._base, self.records, examples, validation, config
                )
                for side, report in read.reports:
                    notable = report.problems or report.duplicates
                    level = logging.WARNING if notable else logging.INFO
                    logger.log(level, "%s: %s", side, "\n".join(report.lines()))
                trainer = self._trainer or await asyncio.to_thread(self._resume_trainer)
                self._trainer = None
                folder = self.run.path / SFT_FOLDER / step_name(trainer.step_index + 1)
                for earlier in folder.parent.glob("*"):
                    if earlier != folder:  # its process died before it had cleaned up
                        remove_progress(earlier)
                run = await asyncio.to_thread(
                    SftRun, trainer, read.data, config, folder, self.run.identity.run_id
                )
                async with self._base.training():
                    metrics = await learn(run, tell)
            return await to_its_end(self._commit_sft(run, trainer, metrics))

    async def distil(
        self, groups: Sequence[TrajectoryGroup], teacher: Teacher, config: StepConfig
    ) -> TrainResult:
        """One step towards a teacher, on what the policy has sampled."""
        self.run.check_untrained(groups)
        teacher.check_speaks(self._base.weights.tokenizer)
        async with self._training:
            return await to_its_end(self._distil(groups, teacher, config))

    async def _distil(
        self, groups: Sequence[TrajectoryGroup], teacher: Teacher, config: StepConfig
    ) -> TrainResult:
        def step(trainer: GRPOTrainer) -> dict[str, float]:
            return distil(trainer, groups, teacher, config)

        async with self._base.training():
            checkpoint, metrics = await asyncio.to_thread(self._step_and_commit, groups, step)
        await self._publish(checkpoint)
        return TrainResult(step=checkpoint.step, metrics=metrics)

    async def measure(self, group: TrajectoryGroup, config: StepConfig) -> StepCost:
        """What a step on one group takes; trains nothing."""
        async with self._training, self._base.training():
            return await asyncio.to_thread(measure_step, self._base, self._lora, group, config)

    async def _train(
        self,
        groups: Sequence[TrajectoryGroup],
        config: StepConfig,
        played: Sequence[TrajectoryGroup],
    ) -> TrainResult:
        async with self._base.training():
            checkpoint, metrics = await asyncio.to_thread(
                self._step_and_commit, played, lambda trainer: trainer.step(groups, config).flat()
            )
        await self._publish(checkpoint)
        return TrainResult(step=checkpoint.step, metrics=metrics)

    def _step_and_commit(
        self,
        played: Sequence[TrajectoryGroup],
        step: Callable[[GRPOTrainer], dict[str, float]],
    ) -> tuple[Checkpoint, dict[str, float]]:
        trainer = self._trainer or self._resume_trainer()
        # Until the checkpoint is there the trainer is ahead of the disk: after a failure
        # the next step starts again from the last checkpoint.
        self._trainer = None
        metrics = step(trainer)
        checkpoint = self.run.commit(
            trainer.step_index, trainer.save, groups=played, metrics=metrics
        )
        self._trainer = trainer
        return checkpoint, metrics

    async def _commit_sft(
        self, run: SftRun, trainer: GRPOTrainer, metrics: dict[str, float]
    ) -> TrainResult:
        checkpoint = await asyncio.to_thread(
            self.run.commit, trainer.step_index, trainer.save, metrics=metrics
        )
        await asyncio.to_thread(run.clean_up)
        self._trainer = trainer
        await self._publish(checkpoint)
        return TrainResult(step=checkpoint.step, metrics=metrics)

    def _resume_trainer(self) -> GRPOTrainer:
        files = self._base.weights.files
        trainer = GRPOTrainer(
            self._base.weights.new_model(),
            lora=self._lora,
            base_name=files.name,
            base_digest=files.digest,
        )
        latest = self.run.checkpoints.latest()
        if latest is not None:
            latest.verify()
            trainer.load(latest.path)
        return trainer

    async def _publish(self, checkpoint: Checkpoint) -> None:
        adapter = AdapterRef(self.name, checkpoint.step)
        await self._base.engine.load_adapter(adapter, checkpoint.path)
        self._gateway.set_adapter(self.name, adapter)
        for version in self._gateway.unused_versions(self.name):
            self._gateway.retire_version(self.name, version)
            if version > 0:
                await self._base.engine.unload_adapter(AdapterRef(self.name, version))

    async def close(self) -> None:
        """Wait for a step that is under way, then let go of the run."""
        async with self._training:
            await asyncio.to_thread(self.records.close)
            await asyncio.to_thread(self.run.close)
