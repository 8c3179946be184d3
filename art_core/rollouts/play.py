"""What the training loop tells the rollouts that it has started."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from art_core.rollouts.backend import RolloutMode
from art_core.rollouts.preflight_report import CallCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRollout:
    """What was seen of a rollout that has ended, whatever became of it."""

    rollout_id: str
    redirected: int
    """Calls that the agent meant for another host, sent to the policy by the capture."""
    passed: Mapping[str, int]
    """Model calls that went to hosts of their own, untouched: how many, by host."""
    calls: Sequence[CallCheck]
    """All calls, those that are never trained on too."""


@dataclass(slots=True)
class Play:
    """One call of the user's function by a loop; `TrainableModel.rollout` takes its
    defaults from here."""

    mode: RolloutMode
    seed: int
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    opened: int = 0
    """Rollouts opened so far: one, unless the function plays several."""
    observed: list[ObservedRollout] = field(default_factory=list[ObservedRollout])
    """Those that have ended, with all that was seen of them."""

    def next_seed(self) -> int:
        """A seed for the next rollout, the same whenever this play is repeated."""
        self.opened += 1
        return self.seed if self.opened == 1 else derive_seed(self.seed, self.opened)


_current: ContextVar[Play | None] = ContextVar("art_play", default=None)


def current_play() -> Play | None:
    """The play that this code runs in; None outside of a loop."""
    return _current.get()


@contextmanager
def playing(play: Play) -> Generator[None]:
    """Make ``play`` the current one inside."""
    before = _current.get()
    _current.set(play)
    try:
        yield
    finally:
        _current.set(before)


def derive_seed(*parts: int | str) -> int:
    """A seed of 63 bits from numbers and names, evenly spread and the same everywhere."""
    digest = hashlib.sha256("/".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
