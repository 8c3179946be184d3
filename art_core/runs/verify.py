"""Is a run directory what it should be? Reads all of it, changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from art_core.errors import RunDamagedError, RunError, StorageError
from art_core.runs.checkpoints import Checkpoint
from art_core.runs.jsonl import JsonLines
from art_core.runs.metrics import TRAIN_SPLIT
from art_core.runs.reader import RunReader
from art_core.runs.records import check_records
from art_core.runs.steplog import read_trained


@dataclass(frozen=True, slots=True)
class Finding:
    """One part of a run, and what is wrong with it."""

    part: str
    """A path inside the run directory."""
    problem: str | None
    """None: it is whole."""


def verify_run(run: RunReader) -> Iterator[Finding]:
    """Check every part: checkpoints by their hashes, the rest by reading all of it.

    Each checkpoint must belong to this run, and the trajectories of its step must be
    the groups that it was trained on.
    """
    for folder in run.checkpoints.folders():
        yield _finding(run, folder, lambda folder=folder: _check_checkpoint(run, folder))
    yield _finding(run, run.metrics.log.lines.path, run.metrics.read)
    yield _finding(run, run.steps_path, lambda: read_trained(run.steps_path))
    for split in run.trajectories.splits():
        for step in run.trajectories.steps(split):
            yield _finding(
                run,
                run.trajectories.path / split / str(step),
                lambda split=split, step=step: _check_trajectories(run, split, step),
            )
    if run.journal.path.exists():
        for path in sorted(run.journal.path.iterdir()):
            yield _finding(run, path, lambda path=path: JsonLines(path).read())
    if run.records_path.exists():
        yield _finding(run, run.records_path, lambda: check_records(run.records_path))


def _finding(run: RunReader, path: Path, check: Callable[[], object]) -> Finding:
    try:
        check()
        problem = None
    except (RunError, StorageError) as error:
        problem = str(error)
    return Finding(path.relative_to(run.path).as_posix(), problem)


def _check_checkpoint(run: RunReader, folder: Path) -> None:
    checkpoint = run.checkpoints.read(folder)
    checkpoint.verify()
    if checkpoint.manifest.run_id != run.identity.run_id:
        raise RunDamagedError(
            f"checkpoint {folder} belongs to run {checkpoint.manifest.run_id}",
            "Remove its folder; 'art runs fork' begins a run with another's checkpoint.",
        )
    _check_groups(run, checkpoint)


def _check_trajectories(run: RunReader, split: str, step: int) -> None:
    run.trajectories.read(split, step)
    path = run.trajectories.file(split, step)
    if not path.read_bytes().endswith(b"\n"):  # it was written whole, so no writer tore it
        raise RunDamagedError(f"{path} ends in the middle of a line", "Restore it from a copy.")


def _check_groups(run: RunReader, checkpoint: Checkpoint) -> None:
    if checkpoint.step not in run.trajectories.steps(TRAIN_SPLIT):
        return  # of a fork's first step, the groups are in the run it comes from
    found = {group.id for group in run.trajectories.read(TRAIN_SPLIT, checkpoint.step)}
    if found != set(checkpoint.manifest.group_ids):
        raise RunDamagedError(
            f"the trajectories of step {checkpoint.step} aren't those that it was trained on",
            "Restore the file of trajectories from a copy.",
        )
