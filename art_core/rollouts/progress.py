"""Live progress of a gather."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from art_core.runs import sampled_tokens
from art_core.trajectories import Trajectory

_LAST_REWARDS = 4


class Watcher(Protocol):
    """Is told what becomes of each rollout."""

    def rollout(self, trajectory: Trajectory) -> None: ...

    def failure(self) -> None: ...


@dataclass(slots=True)
class Tally:
    """Running figures of a gather."""

    max_metrics: int | None = None
    """Most of the trajectories' own metrics to show; None: all."""
    show_tokens: bool = True
    done: int = 0
    failed: int = 0
    tokens: int = 0
    last: deque[float] = field(default_factory=lambda: deque[float](maxlen=_LAST_REWARDS))
    _sums: dict[str, float] = field(default_factory=dict[str, float])
    _counts: dict[str, int] = field(default_factory=dict[str, int])

    def rollout(self, trajectory: Trajectory) -> None:
        self.done += 1
        self.tokens += sampled_tokens(trajectory)
        if trajectory.reward is not None:
            self.last.append(trajectory.reward)
            self._add("reward", trajectory.reward)
        for name, value in trajectory.metrics.items():
            self._add(name, float(value))

    def failure(self) -> None:
        self.done += 1
        self.failed += 1

    def mean(self, name: str) -> float | None:
        """The running mean of ``reward`` or of a metric."""
        return self._sums[name] / self._counts[name] if name in self._sums else None

    def line(self) -> str:
        """The figures in a line."""
        parts: list[str] = []
        reward = self.mean("reward")
        if reward is not None:
            parts.append(f"reward {reward:.3f} [dim]({' '.join(f'{r:.2g}' for r in self.last)})[/]")
        if self.failed:
            parts.append(f"[red]{self.failed} failed[/]")
        if self.show_tokens and self.tokens:
            parts.append(f"{self.tokens:,} tokens")
        own = [name for name in self._sums if name != "reward"][: self.max_metrics]
        parts += [f"{name} {self.mean(name):.3g}" for name in own]
        return " · ".join(parts)

    def _add(self, name: str, value: float) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + value
        self._counts[name] = self._counts.get(name, 0) + 1


class ProgressWatcher:
    """Shows a tally behind a progress bar."""

    def __init__(self, progress: Progress, task: TaskID, tally: Tally) -> None:
        self._progress = progress
        self._task = task
        self.tally = tally

    def rollout(self, trajectory: Trajectory) -> None:
        self.tally.rollout(trajectory)
        self._show()

    def failure(self) -> None:
        self.tally.failure()
        self._show()

    def _show(self) -> None:
        self._progress.update(self._task, completed=self.tally.done, figures=self.tally.line())


def new_progress(console: Console | None = None) -> Progress:
    """A display with a bar, a count, the elapsed time and figures."""
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figures]}"),
        console=console or Console(stderr=True),
    )


@contextmanager
def shown(description: str | None, total: int, tally: Tally) -> Generator[Watcher]:
    """A watcher that shows a bar while inside; one that only counts if there is no description."""
    if description is None:
        yield tally
        return
    with new_progress() as progress:
        task = progress.add_task(description, total=total, figures="")
        yield ProgressWatcher(progress, task, tally)
