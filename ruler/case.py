"""A group as judges get it: what is to be judged, each distinct trajectory once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from art_core.trajectories import Trajectory, TrajectoryStatus
from ruler.messages import Conversation, conversations, to_line
from ruler.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A distinct trajectory. Several that read alike are one entry."""

    conversations: tuple[Conversation, ...]
    cut_off: bool
    """A limit of the agent ended it."""
    positions: tuple[int, ...]
    """Where in `Case.trajectories` the trajectories are that read like this."""
    digest: str
    """Of everything the judge could see of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The trajectories to compare, and the state of judging them."""

    trajectories: tuple[Trajectory, ...]
    entries: tuple[Entry, ...]
    """In an order that doesn't depend on that of ``trajectories``."""
    seed: int = 0
    """The order in which entries are shown follows from it and from what they say."""
    sample: int = 0
    """A judge asked again under another number answers afresh, not from the cache."""
    tally: Tally = field(default_factory=Tally)

    @classmethod
    def of(cls, trajectories: Iterable[Trajectory], *, seed: int = 0, sample: int = 0) -> Self:
        judged = tuple(trajectories)
        return cls(trajectories=judged, entries=_entries(judged), seed=seed, sample=sample)

    @property
    def digest(self) -> str:
        return digest_of(entry.digest for entry in self.entries)


def _entries(trajectories: Sequence[Trajectory]) -> tuple[Entry, ...]:
    found: dict[str, tuple[tuple[Conversation, ...], bool, list[int]]] = {}
    for position, trajectory in enumerate(trajectories):
        shown = conversations(trajectory)
        cut_off = trajectory.status is TrajectoryStatus.TRUNCATED
        parts = [part for one in shown for part in (*map(to_line, one.tools), "", *one.lines, "")]
        digest = digest_of([str(cut_off), *parts])
        found.setdefault(digest, (shown, cut_off, []))[2].append(position)
    return tuple(
        Entry(conversations=shown, cut_off=cut_off, positions=tuple(positions), digest=digest)
        for digest, (shown, cut_off, positions) in sorted(found.items(), key=lambda item: item[0])
    )


def digest_of(parts: Iterable[str]) -> str:
    """Hex digest of a sequence of texts; ``["ab", "c"]`` and ``["a", "bc"]`` differ."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()
