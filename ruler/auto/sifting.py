"""Leaving out scenarios that nothing can be learned from."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from art_core.errors import ConfigError
from art_core.rollouts import gather_trajectory_groups
from art_core.rollouts.play import Play, derive_seed, playing
from art_core.rollouts.playable import Playable, Player, player
from art_core.rollouts.scoring import Scorer
from art_core.trajectories import PendingGroup, Trajectory, TrajectoryGroup
from ruler.auto.scenario import Scenario

TOO_HARD = "never succeeds"
TOO_EASY = "always succeeds"
NO_SPREAD = "all rollouts alike"
UNKNOWN = "unscored or failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """What became of each scenario."""

    kept: list[Scenario]
    rates: dict[str, float]
    """Mean reward by scenario id."""
    dropped: dict[str, str] = field(default_factory=dict[str, str])
    """Why, by scenario id."""


async def sift_scenarios(
    scenarios: Sequence[Scenario],
    play: Player | Playable,
    *,
    reward: Scorer | None = None,
    rollouts: int = 4,
    least: float = 0.05,
    most: float = 0.95,
    concurrency: int = 16,
    seed: int = 0,
) -> Sifted:
    """Play each scenario a few times; keep those whose outcomes differ.

    Dropped are scenarios that the player never (mean reward up to ``least``) or always
    (``most`` or more) gets right, whose rollouts are all rewarded alike, or which
    couldn't be scored. The player is the policy to be trained, or a stronger model.

    Args:
        play: as for `art_core.train`.
        reward: scores a group, a `Ruler` with ``mode="absolute"`` say (scores relative to
            the group don't tell a hard scenario from an easy one). None: ``play`` sets
            rewards itself.
        rollouts: of each scenario.
    """
    if rollouts < 2:
        raise ConfigError(f"rollouts is {rollouts}", "At least 2 can differ.")
    by_id = {one.id: one for one in scenarios}
    rewards: dict[str, list[float]] = {}

    async def keep(group: TrajectoryGroup) -> TrajectoryGroup | None:
        scored = group if reward is None else await reward(group)
        if scored is not None:
            rewards[scored.id] = [one.reward for one in scored if one.reward is not None]
        return scored

    await gather_trajectory_groups(
        [_pending(scenario, player(play), rollouts, seed) for scenario in scenarios],
        pbar_desc="trying scenarios",
        max_exceptions=1.0,
        after_each=keep,
        concurrency=concurrency,
    )
    verdicts = {id_: _verdict(rewards.get(id_, []), least, most) for id_ in by_id}
    return Sifted(
        kept=[one for one in scenarios if verdicts[one.id] is None],
        rates={id_: fmean(values) for id_, values in rewards.items() if values},
        dropped={id_: reason for id_, reason in verdicts.items() if reason is not None},
    )


def _pending(scenario: Scenario, play: Player, rollouts: int, seed: int) -> PendingGroup:
    async def one(number: int) -> Trajectory:
        with playing(Play("train", derive_seed(seed, "sift", scenario.id, number))):
            return await play(scenario)

    return TrajectoryGroup(
        [functools.partial(one, number) for number in range(rollouts)],
        id=scenario.id,
        metadata={"scenario": scenario.model_dump(mode="json")},
    )


def _verdict(rewards: Sequence[float], least: float, most: float) -> str | None:
    """Why a scenario with these rewards is dropped; None: it's kept."""
    if len(rewards) < 2:
        return UNKNOWN
    if fmean(rewards) <= least:
        return TOO_HARD
    if fmean(rewards) >= most:
        return TOO_EASY
    return NO_SPREAD if max(rewards) == min(rewards) else None
