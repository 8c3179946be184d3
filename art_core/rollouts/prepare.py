"""From groups as users hand them over to groups that can be trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from art_core.errors import ConfigError, RewardError, TrajectoryError
from art_core.rollouts.backend import Backend
from art_core.rollouts.join import join_records, unjoined_completion_ids
from art_core.runs import sampled_tokens
from art_core.trajectories import Trajectory, TrajectoryGroup, TrajectoryStatus

if TYPE_CHECKING:
    from art_core.rollouts.model import TrainableModel


async def prepare_groups(
    backend: Backend, model: TrainableModel[Any], groups: Sequence[TrajectoryGroup]
) -> list[TrajectoryGroup]:
    """The groups with only the trajectories that are trained on.

    Hand-built trajectories are joined with their records (in place, so that what is
    logged has the tokens, too); failed ones are left out. Backends call this first
    in `Backend.train`.

    Raises:
        ConfigError: there are no groups, or one has less than two trajectories left.
        RewardError: a trajectory has no reward.
        UnknownCompletionError: a Choice has no record.
        TrajectoryError: a group was trained on before, or a trajectory has no sampled tokens.
    """
    if not groups:
        raise ConfigError("there are no groups to train on", "Gather at least one.")
    backend.run_directory(model).check_untrained(groups)
    return [
        await _prepare_group(backend, model, group, f"group {number}")
        for number, group in enumerate(groups)
    ]


async def _prepare_group(
    backend: Backend, model: TrainableModel[Any], group: TrajectoryGroup, name: str
) -> TrajectoryGroup:
    kept: list[Trajectory] = []
    for number, trajectory in enumerate(group.trajectories):
        if trajectory.status is TrajectoryStatus.FAILED:
            continue
        title = describe(trajectory, f"trajectory {number} of {name}")
        check_scored(trajectory, title)
        await _join(backend, model, trajectory, title)
        if sampled_tokens(trajectory) == 0:
            raise TrajectoryError(
                f"{title} has no sampled tokens to train on",
                "No model call of it was recorded. Make the calls inside model.rollout() (in this "
                "process, or with the trajectory's base_url), or put the Choices that "
                "model.openai_client() returned into messages_and_choices.",
            )
        kept.append(trajectory)
    if len(kept) < 2:
        failed = len(group.trajectories) - len(kept) + len(group.exceptions)
        raise ConfigError(
            f"{name} ({group.id}) has {len(kept)} trajectories to train on; {failed} failed",
            "GRPO compares the rollouts of a group with each other: it needs at least two.",
        )
    return group.model_copy(update={"trajectories": kept})


async def _join(
    backend: Backend, model: TrainableModel[Any], trajectory: Trajectory, title: str
) -> None:
    wanted = unjoined_completion_ids(trajectory, title)
    records = await backend.completions(model, wanted) if wanted else []
    join_records(trajectory, records, title)


def check_scored(trajectory: Trajectory, title: str) -> None:
    """Refuse a trajectory without a reward: none is ever made up.

    Raises:
        RewardError: names the rollout.
    """
    if trajectory.reward is None:
        raise RewardError(
            f"{title} has no reward",
            "Set trajectory.reward to a number, or pass reward= (a scorer) to art.train.",
        )


def describe(trajectory: Trajectory, otherwise: str) -> str:
    """What messages call a trajectory."""
    return f"rollout {trajectory.rollout_id}" if trajectory.rollout_id else otherwise
