"""What good means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from art_core.errors import ConfigError
from art_core.trajectories import Trajectory

DEFAULT_RUBRIC = """\
- Reaching the goal counts most: one that reaches it scores clearly above one that doesn't.
- Among those that reach it, the more direct one scores higher: fewer detours, repeated
  steps and needless calls.
- Getting part of the way earns part of the score; claiming a result without having it earns none.
- Differences in score mirror differences in quality: small for small ones, large for large ones.
"""
"""Used where the user gives none; the goal itself is read from the trajectories' own prompts."""

RubricText = str | Callable[[Sequence[Trajectory]], str]
"""The standard to grade by, or a function that makes it from the trajectories of a group
(from a reference answer in their metadata, say)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One aspect of an absolute rubric."""

    name: str
    """A short word; scores are reported under it."""
    description: str
    """What earns 1 and what earns 0."""
    weight: float = 1.0
    """Relative to the other criteria."""

    def __post_init__(self) -> None:
        if not self.name.replace("_", "").replace("-", "").isalnum() or not self.name.isascii():
            raise ConfigError(
                f"criterion name is {self.name!r}", "Use ASCII letters, digits, '_' and '-' only."
            )
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise ConfigError(
                f"weight of criterion {self.name!r} is {self.weight!r}", "It must be above 0."
            )


def rubric_text(rubric: RubricText, trajectories: Sequence[Trajectory]) -> str:
    """The rubric of these trajectories."""
    return rubric if isinstance(rubric, str) else rubric(trajectories)
