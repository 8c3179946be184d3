"""Files of trajectory groups: ``trajectories/<split>/<step>.jsonl`` and the journal."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from art_core.errors import RunDamagedError, RunError
from art_core.runs.files import storage_errors, write_whole
from art_core.runs.jsonl import JsonLines
from art_core.runs.names import check_name, step_name
from art_core.trajectories import TrajectoryGroup


class TrajectoryFiles:
    """One file per split and step, one group per line, written whole or absent."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, split: str, step: int, groups: Iterable[TrajectoryGroup]) -> None:
        """Replace the file.

        Raises:
            StorageError: it couldn't be written; the old one, if any, is untouched.
            TrajectoryError: a trajectory holds what couldn't be read again; likewise.
        """
        lines = (_line(group).encode() + b"\n" for group in groups)
        write_whole(self.file(split, step), lines)

    def read(self, split: str, step: int) -> list[TrajectoryGroup]:
        """The groups of a split at a step.

        Raises:
            RunError: there is no such file.
            RunDamagedError: a line can't be read.
        """
        path = self.file(split, step)
        if not path.exists():
            steps = ", ".join(str(step) for step in self.steps(split)) or "none"
            raise RunError(f"no {split} trajectories of step {step}: no {path}", f"Steps: {steps}.")
        return _parse_groups(path, JsonLines(path))

    def merge(
        self, split: str, step: int, groups: Iterable[TrajectoryGroup]
    ) -> list[TrajectoryGroup]:
        """Add groups to what the file holds, replacing those with the same id."""
        before = self.read(split, step) if self.file(split, step).exists() else []
        merged = {group.id: group for group in (*before, *groups)}
        self.write(split, step, merged.values())
        return list(merged.values())

    def splits(self) -> list[str]:
        """The splits that have files."""
        return sorted(p.name for p in self.path.iterdir()) if self.path.exists() else []

    def steps(self, split: str) -> list[int]:
        """The steps of a split, ascending."""
        folder = self.path / check_name("split", split)
        return sorted(int(p.stem) for p in folder.glob("[0-9]*.jsonl"))

    def file(self, split: str, step: int) -> Path:
        """Where a split's groups of a step are."""
        return self.path / check_name("split", split) / f"{step_name(step)}.jsonl"


class Journal:
    """The finished groups of the step that is being gathered.

    Kept until the step's checkpoint is published, so that a run that was killed
    doesn't play them again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, step: int, group: TrajectoryGroup) -> None:
        """Keep a finished group; it is on disk when this returns.

        Raises:
            StorageError: it couldn't be written.
            TrajectoryError: a trajectory holds what couldn't be read again.
        """
        self._lines(step).append_json(_line(group))

    def read(self, step: int) -> dict[str, TrajectoryGroup]:
        """The finished groups of a step, by id.

        Raises:
            RunDamagedError: a line can't be read.
        """
        lines = self._lines(step)
        return {group.id: group for group in _parse_groups(lines.path, lines)}

    def keep_only(self, step: int) -> None:
        """Drop all other steps' groups, and what a killed writer left of its last line."""
        if not self.path.exists():
            return
        keep = self._lines(step)
        with storage_errors("clean up", self.path):
            for path in self.path.iterdir():
                if path != keep.path:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        keep.repair()

    def _lines(self, step: int) -> JsonLines:
        return JsonLines(self.path / f"{step_name(step)}.jsonl")


def _line(group: TrajectoryGroup) -> str:
    for trajectory in group.trajectories:
        trajectory.check_contents()
    return group.model_dump_json()


def _parse_groups(path: Path, lines: JsonLines) -> list[TrajectoryGroup]:
    groups: list[TrajectoryGroup] = []
    for number, record in enumerate(lines.read(), start=1):
        try:
            groups.append(TrajectoryGroup.model_validate(record))
        except (ValidationError, ValueError) as error:
            raise RunDamagedError(f"{path}, line {number}, isn't a group: {error}") from error
    return groups
