"""The client's run directory of a model that a server trains.

It has what the training loop keeps (settings, journal, metrics, plot) and, of each
checkpoint, only the manifest: the weights stay on the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from art_core.backends.remote_api import CheckpointView, ModelView
from art_core.config import LoraConfig
from art_core.errors import RunMismatchError
from art_core.runs import Retention, RunDirectory, RunIdentity, check_name
from art_core.runs.checkpoints import CheckpointStore
from art_core.runs.identity import RUN_FILE
from art_core.runs.reader import RunReader

Prune = Callable[[Retention], None]


class RemoteRun(RunDirectory):
    """A run directory whose checkpoints are a server's."""

    prune_there: Prune | None = None

    @classmethod
    def mirror(
        cls, root: Path, *, project: str, lora: LoraConfig, view: ModelView, fresh: bool
    ) -> Self:
        """Open the directory and bring it in line with the server's run.

        Raises:
            RunMismatchError: it belongs to another run, or is ahead of the server's.
            RunLockedError, RunDamagedError, StorageError: see `RunDirectory.open`.
        """
        path = root / check_name("project", project) / check_name("name", view.name)
        if not (path / RUN_FILE).exists() and not fresh:
            _identity(project, lora, view).write(path)
        run = cls._open(root, project, lora, view, fresh=fresh)
        if run.identity.run_id != view.run_id and fresh:
            _identity(project, lora, view).write(path)
            run.close()
            run = cls._open(root, project, lora, view, fresh=False)
        try:
            run._check_same(view)
            run._catch_up(view)
        except BaseException:
            run.close()
            raise
        return run

    @classmethod
    def _open(
        cls, root: Path, project: str, lora: LoraConfig, view: ModelView, *, fresh: bool
    ) -> Self:
        path = root / project / view.name
        if not fresh and (path / RUN_FILE).exists():
            _publish_latest(path, view)
        return cls.open(
            root,
            project=project,
            model=view.name,
            base_model=view.base_model,
            base_digest=view.base_digest,
            lora=lora,
            fresh=fresh,
        )

    def prune(self, retention: Retention) -> None:
        """Here and on the server."""
        if self.prune_there is not None:
            self.prune_there(retention)
        super().prune(retention)

    def _check_same(self, view: ModelView) -> None:
        remedy = "Choose another root, or pass fresh=True, which moves the old directory away."
        if self.identity.run_id != view.run_id:
            raise RunMismatchError(
                f"{self.path} is of run {self.identity.run_id}, and the server's run of model "
                f"{view.name!r} is {view.run_id}",
                remedy,
            )
        if self.step > view.step:
            raise RunMismatchError(
                f"{self.path} is at step {self.step}, and the server's run at step {view.step}",
                remedy,
            )

    def _catch_up(self, view: ModelView) -> None:
        known = {(row.step, row.split): row.metrics for row in self.metrics.read()}
        for row in view.metrics:
            there = known.get((row.step, row.split), {})
            new = {name: nan_for_none(v) for name, v in row.metrics.items() if name not in there}
            if new:
                self.metrics.append(row.step, row.split, new)


def nan_for_none(value: float | None) -> float:
    """JSON has no NaN: null stands for a figure that wasn't finite."""
    return float("nan") if value is None else value


def finite(metrics: Mapping[str, float | None]) -> dict[str, float]:
    return {name: nan_for_none(value) for name, value in metrics.items()}


def _identity(project: str, lora: LoraConfig, view: ModelView) -> RunIdentity:
    return RunIdentity(
        run_id=view.run_id,
        project=project,
        model=view.name,
        base_model=view.base_model,
        base_digest=view.base_digest,
        lora=lora,
    )


def _publish_latest(path: Path, view: ModelView) -> None:
    """Before the directory is opened, which then finds the step and its groups by itself."""
    if RunReader(path).identity.run_id != view.run_id or not view.checkpoints:
        return
    store = CheckpointStore(path / "checkpoints", view.run_id)
    latest: CheckpointView = view.checkpoints[-1]
    if latest.step not in [checkpoint.step for checkpoint in store.all()]:
        store.publish(
            latest.step,
            lambda _: None,
            group_ids=latest.group_ids,
            metrics=finite(latest.metrics),
        )
