"""A new run that begins with a checkpoint of another."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from art_core.errors import RunError
from art_core.runs.checkpoints import Checkpoint, CheckpointStore
from art_core.runs.files import storage_errors, sync_folder
from art_core.runs.identity import ForkedFrom, installed_versions
from art_core.runs.lock import RunLock
from art_core.runs.names import check_name
from art_core.runs.reader import RunReader
from art_core.runs.steplog import StepLog


def fork_run(source: RunReader, step: int, *, root: Path, project: str, model: str) -> RunReader:
    """Copy a checkpoint, and the logs up to its step, to a run of another name.

    The new run has no settings yet: the training loop may be given others. Its base
    model and adapter shape stay. It appears by rename, whole or not at all; the run it
    comes from isn't changed, and may be running.

    Raises:
        ConfigError: project or model can't name a folder.
        RunError: there is no such checkpoint, or the new name is taken.
        RunDamagedError: the checkpoint isn't what its manifest says.
        RunLockedError: another process is making a run of this name.
        StorageError: it couldn't be written; nothing is left behind.
    """
    target = root / check_name("project", project) / check_name("name", model)
    checkpoint = source.checkpoints.get(step)
    checkpoint.verify()
    lock = RunLock(target)
    staging = target.with_name(f".fork-{model}-{uuid4().hex[:8]}")
    try:
        if target.exists():
            raise RunError(f"{target} exists", "Give the fork a name that is free.")
        _write(source, checkpoint, staging, project=project, model=model)
        with storage_errors("create", target):
            staging.rename(target)
            sync_folder(target.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        lock.release()
    return RunReader(target)


def _write(
    source: RunReader, checkpoint: Checkpoint, folder: Path, *, project: str, model: str
) -> None:
    step = checkpoint.step
    origin = source.identity
    identity = origin.model_copy(
        update={
            "run_id": uuid4().hex,
            "project": project,
            "model": model,
            "config": None,
            "created_at": datetime.now(UTC),
            "versions": installed_versions(),
            "forked_from": ForkedFrom(run_id=origin.run_id, step=step),
        }
    )
    identity.write(folder)
    for path in (source.metrics.log.lines.path, source.steps_path):
        copy = StepLog(folder / path.name)
        for line in StepLog(path).read():
            if line["step"] <= step:
                copy.append(line["step"], line)
    manifest = checkpoint.manifest
    CheckpointStore(folder / "checkpoints", identity.run_id).publish(
        step,
        lambda staging: _copy_files(checkpoint, staging),
        group_ids=manifest.group_ids,
        metrics={k: float("nan") if v is None else v for k, v in manifest.metrics.items()},
    )


def _copy_files(checkpoint: Checkpoint, folder: Path) -> None:
    for name in checkpoint.manifest.files:
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkpoint.path / name, to)
