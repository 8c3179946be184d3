"""From trajectory groups to rows of tokens: what a step trains on, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from art_core.config import AdvantageName
from art_core.errors import RewardError, TrajectoryError
from art_core.grpo.advantages import ADVANTAGES
from art_core.trajectories import History, Trajectory, TrajectoryGroup, TrajectoryStatus

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One history up to its last trained token: L tokens, T of them trained."""

    rollout: int
    """Index into `Batch.rollouts`."""
    token_ids: IntArray
    """[L]. The last is a target only: the model isn't asked what follows it."""
    trained: IntArray
    """[T] ascending positions in ``token_ids``, each ≥ 1."""
    sampler_logprobs: FloatArray
    """[T] log-probabilities under the policy that sampled the tokens."""
    policy_versions: IntArray
    """[T] the step of that policy."""

    @property
    def inputs(self) -> IntArray:
        """[L - 1] the tokens that the model reads."""
        return self.token_ids[:-1]


@dataclass(frozen=True, slots=True)
class Rollout:
    """One trajectory in a batch."""

    trajectory: Trajectory
    group: int
    """Index of its group among those given to the step."""
    advantage: float


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything that one step trains on: rollouts of groups with a spread of rewards."""

    rollouts: list[Rollout]
    rows: list[Row]
    groups_without_spread: int
    """Groups whose rewards are all equal, or of fewer than two trajectories: no gradient."""

    @property
    def trained_tokens(self) -> int:
        return sum(len(row.trained) for row in self.rows)


def collect(groups: Sequence[TrajectoryGroup], advantage: AdvantageName) -> Batch:
    """Check the groups and lay out their rows.

    Failed trajectories are left out: they have no part in the baseline. A
    rollout that never sampled anything takes part in it, and has no row.

    Raises:
        RewardError: a trajectory has no reward.
        TrajectoryError: choices that were never joined with their records, or a
            history that begins with a sampled token.
    """
    rollouts: list[Rollout] = []
    rows: list[Row] = []
    flat = 0
    for group_index, group in enumerate(groups):
        trajectories = [t for t in group if t.status is not TrajectoryStatus.FAILED]
        rewards = [_reward(t, group) for t in trajectories]
        if len(rewards) < 2 or max(rewards) == min(rewards):
            flat += 1
            continue
        for trajectory, value in zip(trajectories, ADVANTAGES[advantage](rewards), strict=True):
            rows += trajectory_rows(trajectory, len(rollouts))
            rollouts.append(Rollout(trajectory, group_index, value))
    return Batch(rollouts, rows, flat)


def trajectory_rows(trajectory: Trajectory, rollout: int) -> list[Row]:
    """The rows of a recorded trajectory, the batch's number ``rollout``.

    Raises:
        TrajectoryError: see `collect`.
    """
    rows = (_row(history, rollout) for history in _histories(trajectory))
    return [row for row in rows if row is not None]


def _reward(trajectory: Trajectory, group: TrajectoryGroup) -> float:
    if trajectory.reward is None:
        raise RewardError(
            f"a trajectory of group {group.id} (rollout {trajectory.rollout_id}) has no reward",
            "Set trajectory.reward, or score the group, before training on it.",
        )
    return trajectory.reward


def _histories(trajectory: Trajectory) -> list[History]:
    if trajectory.histories:
        return trajectory.histories
    hand_built = [trajectory.messages_and_choices]
    hand_built += [history.messages_and_choices for history in trajectory.additional_histories]
    if any(not isinstance(item, dict) for items in hand_built for item in items):
        raise TrajectoryError(
            f"the trajectory of rollout {trajectory.rollout_id} holds Choices but no histories",
            "Join it with its records first (a backend's train does), or fill in `histories`.",
        )
    return [history for history in trajectory.additional_histories if history.token_ids]


def _row(history: History, rollout: int) -> Row | None:
    trained = np.flatnonzero(np.asarray(history.loss_mask, dtype=bool))
    if trained.size == 0:
        return None
    if trained[0] == 0:
        raise TrajectoryError(
            "loss_mask is True at position 0 of a history",
            "A sampled token needs at least one prompt token before it.",
        )
    logprobs = np.array([history.logprobs[i] for i in trained], dtype=np.float64)
    if not np.isfinite(logprobs).all():
        position = int(trained[~np.isfinite(logprobs)][0])
        raise TrajectoryError(
            f"logprobs is {history.logprobs[position]} at position {position} of a history",
            "The sampler's log-probability of a trained token must be finite.",
        )
    return Row(
        rollout=rollout,
        token_ids=np.asarray(history.token_ids[: trained[-1] + 1], dtype=np.int64),
        trained=trained,
        sampler_logprobs=logprobs,
        policy_versions=np.array([history.policy_versions[i] for i in trained], dtype=np.int64),
    )
