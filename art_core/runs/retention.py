"""Which checkpoints of a run are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from art_core.errors import ConfigError
from art_core.runs.metrics import MetricsRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The latest ``last`` checkpoints, each ``every``-th step, and the best by a metric."""

    last: int = 3
    every: int | None = None
    best: str | None = None
    """``split/metric``, ``val/reward`` for instance: the step where it was highest is kept."""

    def __post_init__(self) -> None:
        if self.last < 1 or (self.every is not None and self.every < 1):
            raise ConfigError(f"{self} keeps less than one checkpoint", "Keep at least one.")
        if self.best is not None and "/" not in self.best:
            raise ConfigError(f"best is {self.best!r}", "Write split/metric, such as val/reward.")

    def kept(self, steps: Sequence[int], rows: Sequence[MetricsRow]) -> set[int]:
        """Those of ``steps`` (ascending) that are kept."""
        kept = set(steps[-self.last :])
        if self.every is not None:
            kept |= {step for step in steps if step % self.every == 0}
        best = None if self.best is None else best_step(self.best, rows, steps)
        return kept if best is None else kept | {best}


def best_step(best: str, rows: Sequence[MetricsRow], steps: Sequence[int]) -> int | None:
    """The one of ``steps`` where ``split/metric`` was highest, the latest of equals."""
    split, metric = best.split("/", 1)
    measured = {
        row.step: value
        for row in rows
        if row.split == split and (value := row.metrics.get(metric)) is not None
    }
    candidates = [step for step in steps if measured.get(step, float("nan")) == measured.get(step)]
    return max(candidates, key=lambda step: (measured[step], step), default=None)
