"""Shows how far fetching a base model has come."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from art_core.weights import OnProgress
from art_core.weights import Progress as FetchProgress

_STAGES = {
    "download": "downloading the base model",
    "verify": "verifying it",
    "convert": "converting it",
}


@contextmanager
def show_fetching() -> Generator[OnProgress]:
    """What to pass as ``on_progress``; a bar per stage, on standard error, gone at the end."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bars:
        yield _Bars(bars)


class _Bars:
    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progress: FetchProgress) -> None:
        if progress.stage not in self._tasks:
            self._tasks[progress.stage] = self._bars.add_task(_STAGES[progress.stage])
        task = self._tasks[progress.stage]
        self._bars.update(task, completed=progress.done, total=progress.total)
        if progress.done >= progress.total:
            self._bars.update(task, visible=False)
