"""What the training loop shows while it runs."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import TaskID

from art_core.rollouts.backend import OnSftProgress, SftProgress
from art_core.rollouts.progress import ProgressWatcher, Tally, Watcher, new_progress
from art_core.rollouts.report import TrainReport
from art_core.runs import own_metrics


class LoopDisplay:
    """A bar for the steps, one for what is being gathered, and a line for each step done."""

    def __init__(self, name: str, steps: int, done: int) -> None:
        self._console = Console(stderr=True)
        self._steps = steps
        self._progress = new_progress(self._console)
        self._overall: TaskID = self._progress.add_task(
            name, total=steps, completed=done, figures=""
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._progress.stop()

    @contextmanager
    def gathering(self, description: str, total: int) -> Generator[Watcher]:
        """A bar for rollouts, there while inside."""
        task = self._progress.add_task(description, total=total, figures="")
        try:
            yield ProgressWatcher(self._progress, task, Tally(max_metrics=3))
        finally:
            self._progress.remove_task(task)

    @contextmanager
    def training(self, step: int) -> Generator[None]:
        """A bar without end for the training step."""
        task = self._progress.add_task(f"training step {step}", total=None, figures="")
        try:
            yield
        finally:
            self._progress.remove_task(task)

    @contextmanager
    def learning(self) -> Generator[OnSftProgress]:
        """A bar for the updates of the warm start."""
        task = self._progress.add_task("learning from examples", total=None, figures="")

        def show(progress: SftProgress) -> None:
            self._progress.update(
                task,
                total=progress.total,
                completed=progress.done,
                figures=f"loss {progress.loss:.4f}",
            )

        try:
            yield show
        finally:
            self._progress.remove_task(task)

    def step_done(self, step: int, metrics: Mapping[str, float]) -> None:
        """A line on a finished step."""
        self._progress.update(self._overall, completed=step)
        self.note(f"step {step}/{self._steps}  {_figures(metrics)}")

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """A line on an evaluation."""
        reward = metrics.get("reward")
        shown = "nothing was scored" if reward is None else f"reward [bold]{reward:.3f}[/]"
        own = "".join(f"  {name} {value:.3f}" for name, value in own_metrics(metrics).items())
        rollouts = f"{metrics['trajectories']:.0f} rollouts"
        self.note(f"held-out at step {step}: {shown}{own}  ({rollouts})")

    def note(self, line: str) -> None:
        """A line above the bars."""
        self._progress.console.print(line, highlight=False, soft_wrap=True)

    def summary(self, report: TrainReport) -> None:
        """The table at the end, and where to find the rest."""
        self._console.print(report.table())
        self._console.print(f"run directory: {report.run_path}", highlight=False, soft_wrap=True)
        if report.plot_path is not None:
            self._console.print(
                f"reward curve: {report.plot_path}", highlight=False, soft_wrap=True
            )


def _figures(metrics: Mapping[str, float]) -> str:
    parts = [
        shown.format(metrics[name])
        for name, shown in (
            ("reward", "reward [bold]{:.3f}[/]"),
            ("reward_spread", "± {:.3f}"),
            ("groups_without_spread", "no spread {:.0%}"),
            ("rollouts_failed", "failed {:.0f}"),
            ("loss", "loss {:.4f}"),
            ("sft/last_loss", "loss on examples {:.4f}"),
            ("sft/validation_loss", "held out {:.4f}"),
            ("seconds_gathering", "gathered in {:.1f} s"),
            ("seconds_training", "trained in {:.1f} s"),
        )
        if name in metrics
    ]
    return "  ".join(parts)
