"""Fetches a base model and shows how far that has come."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from art_core.weights import BaseModelFiles, resolve
from art_core.weights import Progress as FetchProgress

_STAGES = {
    "download": "downloading the base model",
    "verify": "verifying it",
    "convert": "converting it",
}


def fetch(spec: str) -> BaseModelFiles:
    """A base model, fetched if it isn't here; bars on standard error while that takes.

    Raises:
        UnknownModelError, WeightsError, StorageError: see `resolve`.
    """
    display = _Display()
    try:
        return resolve(spec, on_progress=display)
    finally:
        display.stop()


class _Display:
    """A bar per stage; nothing is shown if nothing is fetched."""

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progress: FetchProgress) -> None:
        if self._bars is None:
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._bars.start()
        if progress.stage not in self._tasks:
            self._tasks[progress.stage] = self._bars.add_task(_STAGES[progress.stage])
        self._bars.update(
            self._tasks[progress.stage], completed=progress.done, total=progress.total
        )

    def stop(self) -> None:
        if self._bars is not None:
            self._bars.stop()
