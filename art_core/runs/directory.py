"""``.art/<project>/<model>/``: what a training run leaves on disk, and goes on from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from art_core.config import LoraConfig, TrainConfig
from art_core.errors import RunDamagedError, TrajectoryError
from art_core.runs.checkpoints import Checkpoint
from art_core.runs.files import make_folder, remove_temporaries, storage_errors, sync_folder
from art_core.runs.identity import RUN_FILE, RunIdentity
from art_core.runs.lock import RunLock
from art_core.runs.metrics import TRAIN_SPLIT, check_metrics, group_metrics
from art_core.runs.names import check_name
from art_core.runs.reader import ARCHIVE, DEFAULT_ROOT, RunReader
from art_core.runs.retention import Retention
from art_core.runs.steplog import StepLog, read_trained
from art_core.trajectories import TrajectoryGroup


class RunDirectory(RunReader):
    """A run directory, open and locked for its one writer. Open it with `open`.

    A step is committed by the rename of its checkpoint (`commit`); what is
    written after that (metrics, the index of trained groups) is written again
    from the checkpoint's manifest if the process dies in between.
    """

    def __init__(self, path: Path, lock: RunLock) -> None:
        super().__init__(path)
        self._lock = lock
        self._writing = threading.Lock()
        self._steps = StepLog(self.steps_path)
        self._trained: dict[str, int] = {}
        self._recover()

    @classmethod
    def open(
        cls,
        root: Path = DEFAULT_ROOT,
        *,
        project: str,
        model: str,
        base_model: str | None = None,
        base_digest: str | None = None,
        lora: LoraConfig | None = None,
        fresh: bool = False,
    ) -> Self:
        """Open a run's directory, creating it if there is none.

        With ``fresh`` a run that is there already is moved to
        ``<root>/.archive/<project>/`` first.

        Raises:
            ConfigError: project or model can't name a folder.
            RunLockedError: another process, or another opener in this one, has it.
            RunMismatchError: its run has another base model or adapter shape.
            RunDamagedError: what is there isn't a run that can be read.
            StorageError: it can't be written to.
        """
        asked = RunIdentity(
            project=check_name("project", project),
            model=check_name("name", model),
            base_model=base_model,
            base_digest=base_digest,
            lora=lora,
        )
        path = root / asked.project / asked.model
        lock = RunLock(path)
        try:
            if fresh and path.exists():
                _archive(path, root / ARCHIVE / asked.project)
            if (path / RUN_FILE).exists():
                RunIdentity.read(path).check_same_model(asked)
            else:
                _refuse_strangers(path)
                asked.write(path)
            lock.sign()
            return cls(path, lock)
        except BaseException:
            lock.release()
            raise

    def bind(self, config: TrainConfig) -> None:
        """Make ``config`` the run's settings, or check that it is.

        Raises:
            RunMismatchError: the run was begun with other settings; names them.
        """
        bound = self.identity.with_config(config)
        if bound != self.identity:
            bound.write(self.path)
            self.identity = bound

    def commit(
        self,
        step: int,
        write: Callable[[Path], None],
        *,
        groups: Sequence[TrajectoryGroup] = (),
        metrics: Mapping[str, float] | None = None,
    ) -> Checkpoint:
        """Publish the checkpoint of a step and all that goes with it.

        ``write`` fills an empty folder with the adapter and the optimizer's state.
        The step counts once its checkpoint has its name; killed before that, it is
        as if it hadn't been begun.

        Raises:
            RunError: the step has a checkpoint already.
            TrajectoryError: a group was trained on before.
            ConfigError: a metric has a name that each line has itself.
            StorageError: it couldn't be written; the run is as it was.
        """
        self.check_untrained(groups)
        measured = {
            **(group_metrics(groups) if groups else {}),
            **check_metrics(step, metrics or {}),
        }
        if groups:
            self.trajectories.write(TRAIN_SPLIT, step, groups)
        checkpoint = self.checkpoints.publish(
            step,
            write,
            group_ids=[group.id for group in groups],
            metrics=measured,
            config_hash=self.identity.config_hash,
        )
        self._index(checkpoint)
        self.journal.keep_only(step + 1)
        return checkpoint

    def check_untrained(self, groups: Iterable[TrajectoryGroup]) -> None:
        """Refuse groups that a step of this run was trained on, or that come twice.

        Raises:
            TrajectoryError: names the group and the step.
        """
        seen: set[str] = set()
        for group in groups:
            if group.id in seen:
                raise TrajectoryError(
                    f"group {group.id} is in the batch twice", "Pass each group once."
                )
            seen.add(group.id)
            if group.id in self._trained:
                raise TrajectoryError(
                    f"group {group.id} was trained on in step {self._trained[group.id]}",
                    "A group is trained on once: gather new rollouts with the new policy.",
                )

    def trained_step(self, group_ids: Iterable[str]) -> int | None:
        """The step that was trained on exactly these groups; None: none was."""
        wanted = sorted(group_ids)
        step = self._trained.get(wanted[0]) if wanted else None
        there = sorted(group for group, at in self._trained.items() if at == step)
        return step if step is not None and there == wanted else None

    def log_groups(
        self, step: int, split: str, groups: Sequence[TrajectoryGroup]
    ) -> dict[str, float]:
        """Add groups to a split's file of a step; returns the metrics of all in it.

        Raises:
            ConfigError: the split can't name a folder.
            StorageError: it couldn't be written.
        """
        with self._writing:
            merged = self.trajectories.merge(split, step, groups)
        metrics = group_metrics(merged)
        self.metrics.append(step, split, metrics)
        return metrics

    def prune(self, retention: Retention) -> None:
        """Remove the checkpoints that ``retention`` doesn't keep.

        Raises:
            StorageError: one couldn't be removed.
        """
        steps = [checkpoint.step for checkpoint in self.checkpoints.all()]
        self.checkpoints.keep(retention.kept(steps, self.metrics.read()))

    def close(self) -> None:
        """Let go of the lock."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _recover(self) -> None:
        """Bring everything in line with the checkpoints, which are the truth."""
        remove_temporaries(self.path)
        self.checkpoints.clean()
        for log in (self.metrics.log, self._steps):
            log.repair()
            log.rewind(self.step)
        trained = read_trained(self.steps_path)
        self._trained = {group_id: step for step, groups in trained for group_id in groups}
        known = {step for step, _ in trained}
        for checkpoint in self.checkpoints.all():
            if checkpoint.step not in known:
                self._index(checkpoint)
        self.journal.keep_only(self.step + 1)

    def _index(self, checkpoint: Checkpoint) -> None:
        """Write what can be read from the manifest alone, for when the checkpoint is pruned."""
        manifest = checkpoint.manifest
        finite = {k: float("nan") if v is None else v for k, v in manifest.metrics.items()}
        if finite:
            self.metrics.append(manifest.step, TRAIN_SPLIT, finite)
        self._steps.append(manifest.step, {"group_ids": manifest.group_ids})
        self._trained |= dict.fromkeys(manifest.group_ids, manifest.step)


def _archive(path: Path, archive: Path) -> None:
    make_folder(archive)
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    with storage_errors("archive", path):
        path.rename(archive / f"{path.name}-{moment}")
        sync_folder(path.parent)
        sync_folder(archive)


def _refuse_strangers(path: Path) -> None:
    """A folder without run.json must be empty: a run writes that file first."""
    if path.exists() and any(not p.name.startswith(".") for p in path.iterdir()):
        raise RunDamagedError(
            f"{path} has files in it but no {RUN_FILE}",
            "It isn't a run directory, or was damaged: move it away, or restore the file.",
        )
