"""A loop's rollouts: the user's function, called with its seed and checked after."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

from art_core.errors import RolloutError, TrajectoryError
from art_core.rollouts.backend import RolloutMode
from art_core.rollouts.play import Play, derive_seed, playing
from art_core.rollouts.playable import Player
from art_core.rollouts.prepare import describe
from art_core.rollouts.prompted import MODEL_CALLS, NO_CALLS
from art_core.rollouts.scenarios import scenario_json
from art_core.trajectories import (
    PendingGroup,
    Trajectory,
    TrajectoryGroup,
    TrajectoryStatus,
    is_choice,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """One group that a loop is to gather."""

    id: str
    scenario: Any
    scenario_index: int
    mode: RolloutMode
    rollouts: int
    seed: int
    """Of the group; each rollout's is derived from it."""
    tags: dict[str, str] = field(default_factory=dict[str, str])

    def pending(self, player: Player) -> PendingGroup:
        """The group's rollouts, to be gathered."""
        rollouts = [RolloutPlan(player, self, number) for number in range(self.rollouts)]
        return TrajectoryGroup(
            rollouts,
            id=self.id,
            metadata={
                "scenario": scenario_json(self.scenario),
                "scenario_index": self.scenario_index,
            },
        )

    def is_plan_of(self, group: TrajectoryGroup) -> bool:
        """Whether a group from an earlier start is what this plan would give."""
        return (
            group.id == self.id
            and group.metadata.get("scenario") == scenario_json(self.scenario)
            and len(group.trajectories) + len(group.exceptions) == self.rollouts
        )


@dataclass(slots=True)
class RolloutPlan:
    """One rollout of a group; calling it plays it (again, with another seed)."""

    player: Player
    group: GroupPlan
    number: int
    attempts: int = 0

    async def __call__(self) -> Trajectory:
        self.attempts += 1
        seed = derive_seed(self.group.seed, self.number, self.attempts)
        tags = {**self.group.tags, "rollout": str(self.number)}
        with playing(Play(self.group.mode, seed, tags)):
            result: object = self.player(self.group.scenario)
            if inspect.isawaitable(result):
                result = await result
        return checked(result)


def checked(result: object) -> Trajectory:
    """What the user's function returned, if it can be used, or says itself that it failed.

    Raises:
        TrajectoryError: it isn't a trajectory.
        RolloutError: its rollout never called the model.
    """
    if not isinstance(result, Trajectory):
        raise TrajectoryError(
            f"the function that plays a scenario returned {result!r:.200} "
            f"({type(result).__name__})",
            "It must be 'async def' and return the Trajectory of its rollout.",
        )
    if result.status is TrajectoryStatus.FAILED or MODEL_CALLS in result.metadata:
        return result
    title = describe(result, "a trajectory without rollout")
    histories = (*result.histories, *result.additional_histories)
    messages = [*result.messages_and_choices]
    for history in result.additional_histories:
        messages += history.messages_and_choices
    if not any(h.token_ids or h.sampled_elsewhere for h in histories) and not any(
        map(is_choice, messages)
    ):
        raise RolloutError(
            f"{title} can't be used: {NO_CALLS}",
            "Call the model inside model.rollout(): with model.openai_client(), a client of a host "
            "in the model's CaptureConfig, or the trajectory's base_url in another process.",
        )
    return result
