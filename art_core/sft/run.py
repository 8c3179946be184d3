"""One warm start: so many updates, from where an earlier start left off."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from art_core.config import SftConfig
from art_core.errors import RunMismatchError
from art_core.grpo import GRPOTrainer
from art_core.grpo.metrics import FitMetrics
from art_core.runs.checkpoints import CheckpointStore
from art_core.runs.files import storage_errors
from art_core.runs.steplog import StepLog
from art_core.sft.batches import batch_of_update, step_config, to_batch, total_updates
from art_core.sft.examples import Prepared

LOSSES_FILE = "losses.jsonl"
PROGRESS_FOLDER = "progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class SftData:
    """What is learned, and what the loss is measured on."""

    training: Sequence[Prepared]
    validation: Sequence[Prepared] = ()

    def fingerprint(self, config: SftConfig) -> str:
        """A hash of the tokens and the settings."""
        digest = hashlib.sha256(config.model_dump_json(exclude={"save_every"}).encode())
        for side in (self.training, self.validation):
            for example in side:
                for row in example.rows:
                    digest.update(repr((row.token_ids, row.trained)).encode())
            digest.update(b"|")
        return digest.hexdigest()


class SftRun:
    """Learns from examples, update by update.

    Progress (adapter, optimizer, losses) is saved in ``folder``, whole or not at all;
    a new `SftRun` on the same folder goes on from it and ends with the same weights.
    The trainer begins and ends with a new optimizer: Adam's moments of another objective
    would only set the size of this one's first steps.

    Raises:
        RunMismatchError: ``folder`` has progress with other examples or settings.
        RunDamagedError: what is in ``folder`` can't be read.
    """

    def __init__(
        self, trainer: GRPOTrainer, data: SftData, config: SftConfig, folder: Path, run_id: str
    ) -> None:
        self._trainer = trainer
        self._data = data
        self._config = config
        self._folder = folder
        self.updates = total_updates(len(data.training), config)
        self._per_epoch = self.updates // config.epochs
        self._step_config = step_config(config, self.updates)
        self._fingerprint = data.fingerprint(config)
        self._progress = CheckpointStore(folder / PROGRESS_FOLDER, run_id)
        self._losses = StepLog(folder / LOSSES_FILE)
        self._resume()

    @property
    def done(self) -> int:
        """Updates that were made, those of earlier starts included."""
        return self._trainer.updates

    def update(self) -> FitMetrics:
        """Make the next update; at the end of an epoch, measure the validation loss."""
        if self.done == 0 and self._data.validation:
            self._losses.append(0, {"validation_loss": self._validation_loss()})
        batch = to_batch(batch_of_update(self._data.training, self._config, self.done))
        before = self.done
        metrics = self._trainer.fit(batch, self._step_config)
        line = asdict(metrics)
        if self.done % self._per_epoch == 0 and self._data.validation:
            line["validation_loss"] = self._validation_loss()
        self._losses.append(before + 1, line)
        if self.done % self._config.save_every == 0 and self.done < self.updates:
            self.save()
        return metrics

    def save(self) -> None:
        """Save the progress, and drop what was saved earlier."""
        if self.done in {0, *(c.step for c in self._progress.all())}:
            return
        self._progress.publish(self.done, self._trainer.save, config_hash=self._fingerprint)
        self._progress.keep(set())

    def finish(self) -> dict[str, float]:
        """Hand the trainer over to what comes next; returns the figures of the whole.

        The progress stays until `clean_up`, for a process that dies before it has committed.
        """
        lines = self._losses.read()
        last_epoch = [line["loss"] for line in lines if line["step"] > self.done - self._per_epoch]
        measured = [line["validation_loss"] for line in lines if "validation_loss" in line]
        figures = {
            "sft/updates": float(self.done),
            "sft/examples": float(len(self._data.training)),
            "sft/first_loss": next(line["loss"] for line in lines if "loss" in line),
            "sft/last_loss": sum(last_epoch) / len(last_epoch),
            "sft/tokens_trained": float(sum(line.get("tokens_trained", 0) for line in lines)),
        }
        if measured:
            figures["sft/validation_loss_before"] = measured[0]
            figures["sft/validation_loss"] = measured[-1]
        self._trainer.restart_optimizer()
        self._trainer.step_index += 1
        return figures

    def clean_up(self) -> None:
        """Remove the progress, once the result is committed elsewhere. The losses stay."""
        remove_progress(self._folder)

    def _resume(self) -> None:
        self._progress.clean()
        latest = self._progress.latest()
        if latest is None:
            self._trainer.restart_optimizer()
        elif latest.manifest.config_hash != self._fingerprint:
            raise RunMismatchError(
                f"{self._folder} has the progress of {latest.step} updates with other examples "
                "or settings",
                "Set them back to go on from there, or remove that folder to start anew.",
            )
        else:
            latest.verify()
            self._trainer.load(latest.path)
        self._losses.repair()
        self._losses.rewind(self.done if latest is not None else -1)

    def _validation_loss(self) -> float:
        return self._trainer.cross_entropy(to_batch(self._data.validation), self._step_config)


def remove_progress(folder: Path) -> None:
    """Remove what `SftRun` saved in ``folder`` to go on from.

    Raises:
        StorageError: it couldn't be removed.
    """
    path = folder / PROGRESS_FOLDER
    if path.exists():
        with storage_errors("remove", path):
            shutil.rmtree(path)
