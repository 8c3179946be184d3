"""Checkpoints: folders that appear by rename, whole or not at all."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from uuid import uuid4

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from art_core.errors import RunDamagedError, RunError
from art_core.runs.files import (
    jsonable_metrics,
    make_folder,
    storage_errors,
    sync_file,
    sync_folder,
    write_whole,
)
from art_core.runs.identity import check_format
from art_core.runs.names import step_name

MANIFEST_FILE = "manifest.json"
FORMAT_VERSION = 1
_STAGING = ".staging-"
_REMOVING = ".removing-"


class FileEntry(BaseModel):
    """One file of a checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int
    sha256: str


class _Format(BaseModel):
    """The one field that every format of a manifest has."""

    format_version: int


class Manifest(BaseModel):
    """What a checkpoint is made of, and of what it was made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: int = FORMAT_VERSION
    run_id: str
    step: int = Field(ge=0)
    group_ids: list[str]
    """The groups that this step was trained on."""
    config_hash: str | None
    metrics: dict[str, float | None]
    """Of the step; None was not finite."""
    files: dict[str, FileEntry]
    """By their paths inside the folder, with forward slashes."""
    created_at: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A published checkpoint."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.step

    def verify(self) -> None:
        """Check each file against the manifest. Call before loading any of them.

        Raises:
            RunDamagedError: names the file that is missing, changed or not in the manifest.
        """
        found = {path.relative_to(self.path).as_posix() for path in _files_in(self.path)}
        found.discard(MANIFEST_FILE)
        for name in sorted(found ^ self.manifest.files.keys()):
            what = "isn't in its manifest" if name in found else "is missing"
            raise self._damaged(f"{name} {what}")
        for name, entry in self.manifest.files.items():
            with storage_errors("read", self.path / name):
                actual = _entry(self.path / name)
            if actual != entry:
                raise self._damaged(
                    f"{name} has {actual.size} bytes with SHA-256 {actual.sha256[:12]}…; "
                    f"the manifest says {entry.size} and {entry.sha256[:12]}…"
                )

    def _damaged(self, problem: str) -> RunDamagedError:
        return RunDamagedError(
            f"checkpoint {self.path} is damaged: {problem}",
            "Restore it from a copy, or remove its folder: the run then goes on from the one "
            "before it.",
        )


class CheckpointStore:
    """The folder ``checkpoints/`` of a run."""

    def __init__(self, path: Path, run_id: str) -> None:
        self.path = path
        self._run_id = run_id

    def publish(
        self,
        step: int,
        write: Callable[[Path], None],
        *,
        group_ids: Sequence[str] = (),
        metrics: Mapping[str, float] | None = None,
        config_hash: str | None = None,
    ) -> Checkpoint:
        """Make a checkpoint of what ``write`` puts into the empty folder it is given.

        Everything is on disk before the folder gets its name; a process that is
        killed earlier leaves no checkpoint of this step.

        Raises:
            RunError: this step has a checkpoint already.
            StorageError: it couldn't be written; nothing is left behind.
        """
        target = self.path / step_name(step)
        if target.exists():
            raise RunError(f"step {step} already has a checkpoint: {target}")
        staging = self.path / f"{_STAGING}{step_name(step)}-{uuid4().hex[:8]}"
        make_folder(staging)
        try:
            with storage_errors("write", target):
                write(staging)
                files = _files_in(staging)
                manifest = Manifest(
                    run_id=self._run_id,
                    step=step,
                    group_ids=list(group_ids),
                    config_hash=config_hash,
                    metrics=jsonable_metrics(metrics or {}),
                    files={p.relative_to(staging).as_posix(): _entry(p) for p in files},
                )
                _sync_tree(staging, files)
                write_whole(
                    staging / MANIFEST_FILE, [manifest.model_dump_json(indent=2).encode() + b"\n"]
                )
                staging.rename(target)
                sync_folder(self.path)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        return Checkpoint(target, manifest)

    def all(self) -> list[Checkpoint]:
        """The published checkpoints, by step.

        Raises:
            RunDamagedError: a manifest is missing or can't be read.
        """
        return sorted(map(self.read, self.folders()), key=lambda c: c.step)

    def folders(self) -> list[Path]:
        """The folders that should be checkpoints, by name."""
        if not self.path.exists():
            return []
        found = (p for p in self.path.iterdir() if p.is_dir() and not p.name.startswith("."))
        return sorted(found)

    def latest(self) -> Checkpoint | None:
        """The checkpoint that a run goes on from."""
        found = self.all()
        return found[-1] if found else None

    def get(self, step: int) -> Checkpoint:
        """The checkpoint of a step.

        Raises:
            RunError: there is none; names those that there are.
        """
        found = self.all()
        for checkpoint in found:
            if checkpoint.step == step:
                return checkpoint
        steps = ", ".join(str(checkpoint.step) for checkpoint in found) or "none"
        raise RunError(f"no checkpoint of step {step} in {self.path}", f"There are: {steps}.")

    def keep(self, steps: set[int]) -> None:
        """Remove all checkpoints but the latest and those of ``steps``."""
        for checkpoint in self.all()[:-1]:
            if checkpoint.step not in steps:
                self._remove(checkpoint)

    def clean(self) -> None:
        """Remove what was being written or removed when a process was killed."""
        if not self.path.exists():
            return
        with storage_errors("clean up", self.path):
            for prefix in (_STAGING, _REMOVING):
                for folder in self.path.glob(f"{prefix}*"):
                    shutil.rmtree(folder)

    def _remove(self, checkpoint: Checkpoint) -> None:
        # Renamed first: a half-removed checkpoint must not be taken for a damaged one.
        doomed = self.path / f"{_REMOVING}{checkpoint.path.name}-{uuid4().hex[:8]}"
        with storage_errors("remove", checkpoint.path):
            checkpoint.path.rename(doomed)
            shutil.rmtree(doomed)

    def read(self, folder: Path) -> Checkpoint:
        """The checkpoint in a folder, its files not looked at.

        Raises:
            RunDamagedError: its manifest is missing, can't be read or is of a newer format.
        """
        path = folder / MANIFEST_FILE
        remedy = "Restore it from a copy, or remove its folder."
        try:
            with storage_errors("read", path):
                content = path.read_bytes()
            check_format(path, _Format.model_validate_json(content).format_version, FORMAT_VERSION)
            manifest = Manifest.model_validate_json(content)
        except (ValidationError, OSError) as error:
            raise RunDamagedError(f"checkpoint {folder} is damaged: {error}", remedy) from error
        unsafe = [name for name in manifest.files if not _is_inside(name)]
        if unsafe or folder.name != step_name(manifest.step):
            what = f"names the file {unsafe[0]!r}" if unsafe else f"is of step {manifest.step}"
            raise RunDamagedError(f"checkpoint {folder} is damaged: its manifest {what}", remedy)
        return Checkpoint(folder, manifest)


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name


def _files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


def _entry(path: Path) -> FileEntry:
    if path.is_symlink():
        raise OSError(f"{path} is a symbolic link")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return FileEntry(size=path.stat().st_size, sha256=digest.hexdigest())


def _sync_tree(folder: Path, files: Sequence[Path]) -> None:
    for path in files:
        sync_file(path)
    for path in folder.rglob("*"):
        if path.is_dir():
            sync_folder(path)
