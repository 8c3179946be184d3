"""Logs of steps that can be taken back without losing a line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from art_core.errors import RunDamagedError
from art_core.runs.jsonl import JsonLines

_REWIND = "rewind_to"


class StepLog:
    """JSON lines with a ``step`` each.

    When a run goes on from an earlier step (the user removed its latest
    checkpoints), the lines of the later steps aren't deleted: a line
    ``{"rewind_to": step}`` says that those before it, of later steps, no longer hold.
    """

    def __init__(self, path: Path) -> None:
        self.lines = JsonLines(path)

    def append(self, step: int, fields: Mapping[str, Any]) -> None:
        """Add a line.

        Raises:
            StorageError: it couldn't be written; the file is as it was.
        """
        self.lines.append({"step": step, **fields})

    def read(self) -> list[dict[str, Any]]:
        """The lines that hold, oldest first.

        Raises:
            RunDamagedError: a line isn't a JSON object with a step.
        """
        kept: list[dict[str, Any]] = []
        for record in self.lines.read():
            if isinstance(rewound_to := record.get(_REWIND), int):
                kept = [line for line in kept if line["step"] <= rewound_to]
            elif isinstance(record.get("step"), int):
                kept.append(record)
            else:
                raise RunDamagedError(
                    f"{self.lines.path} has a line without a step: {record!r:.200}"
                )
        return kept

    def rewind(self, step: int) -> None:
        """Make the lines of steps after ``step`` no longer hold."""
        if any(line["step"] > step for line in self.read()):
            self.lines.append({_REWIND: step})

    def repair(self) -> None:
        """Cut off what a killed writer left of its last line."""
        self.lines.repair()


def read_trained(path: Path) -> list[tuple[int, list[str]]]:
    """From ``steps.jsonl``: each step, and the groups that it was trained on.

    Raises:
        RunDamagedError: a line can't be read.
    """
    trained: list[tuple[int, list[str]]] = []
    for line in StepLog(path).read():
        groups = line.get("group_ids")
        if not isinstance(groups, list):
            raise RunDamagedError(f"{path}: the line of step {line['step']} has no group_ids")
        trained.append((line["step"], [str(group) for group in cast("list[object]", groups)]))
    return trained
