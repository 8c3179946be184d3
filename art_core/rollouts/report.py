"""What a run of the training loop did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from art_core.runs import TRAIN_SPLIT, VALIDATION_SPLIT, MetricsRow
from art_core.trajectories import TrajectoryGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One training step, as ``on_step`` is told of it."""

    step: int
    groups: list[TrajectoryGroup]
    """What the step was trained on."""
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport:
    """A run, earlier starts of it included."""

    run_path: Path
    plot_path: Path | None
    """None: matplotlib isn't installed."""
    steps: int
    seconds: float
    """Of this start."""
    rows: Sequence[MetricsRow]
    """All that is in ``metrics.jsonl``."""

    def rewards(self, split: str) -> dict[int, float]:
        """Mean reward by step: ``train`` at the step that was trained, others at the step
        that the model was at."""
        return {
            row.step: row.metrics["reward"]
            for row in self.rows
            if row.split == split and "reward" in row.metrics
        }

    @property
    def before(self) -> float | None:
        """Held-out reward before the first step."""
        return self.rewards(VALIDATION_SPLIT).get(0)

    @property
    def after(self) -> float | None:
        """Held-out reward after the last step."""
        return self.rewards(VALIDATION_SPLIT).get(self.steps)

    def table(self) -> Table:
        """The summary that is printed at the end."""
        table = Table(title="training", show_header=False, title_justify="left")
        table.add_column(style="bold")
        table.add_column(justify="right")
        for name, value in self._lines():
            table.add_row(name, value)
        return table

    def _lines(self) -> list[tuple[str, str]]:
        training = [row.metrics for row in self.rows if row.split == TRAIN_SPLIT]
        rewards = list(self.rewards(TRAIN_SPLIT).values())
        lines = [("steps", str(self.steps))]
        if self.before is not None and self.after is not None:
            change = self.after - self.before
            lines.append(
                ("held-out reward", f"{self.before:.3f} → {self.after:.3f} ({change:+.3f})")
            )
        held_out = self.rewards(VALIDATION_SPLIT)
        if held_out:
            best = max(held_out, key=lambda step: held_out[step])
            lines.append(("best held-out reward", f"{held_out[best]:.3f} at step {best}"))
        if rewards:
            lines.append(("training reward", f"{rewards[0]:.3f} → {rewards[-1]:.3f}"))
        rollouts = sum(row.get("trajectories", 0) for row in training)
        failed = sum(row.get("rollouts_failed", 0) for row in training)
        tokens = sum(row.get("trajectories", 0) * row.get("sampled_tokens", 0) for row in training)
        lines += [
            ("rollouts", f"{rollouts:,.0f} ({failed:,.0f} failed)"),
            ("sampled tokens", f"{tokens:,.0f}"),
            ("this start took", f"{self.seconds:,.0f} s"),
        ]
        return lines
