"""What `train` and `check` take as an agent: a function, or one that an adapter wrapped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

from art_core.trajectories import Trajectory

Player = Callable[[Any], Awaitable[Trajectory]]
"""Plays one scenario."""


@runtime_checkable
class Playable(Protocol):
    """A wrapped agent: called, it's still the user's function; played, it's a rollout."""

    async def play(self, scenario: Any, /) -> Trajectory: ...


def player(agent: Player | Playable) -> Player:
    """The function that plays one scenario with ``agent``."""
    return agent.play if isinstance(agent, Playable) else agent
