"""From what a client sends of its trajectories to trajectories with recorded tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from art_core.backends.remote_api import GroupRef, TrajectoryRef
from art_core.errors import TrajectoryError
from art_core.rollouts import TrainableModel
from art_core.rollouts.backend import Backend
from art_core.rollouts.closed import ClosedRollout
from art_core.rollouts.rollout import fill
from art_core.trajectories import Completion, Trajectory, TrajectoryGroup, TrajectoryStatus


async def groups_of(
    backend: Backend, model: TrainableModel[Any], refs: Sequence[GroupRef]
) -> list[TrajectoryGroup]:
    """The groups, with their completions as they were recorded.

    Raises:
        UnknownCompletionError: the model has no record of a completion.
        TrajectoryError: a completion may not be trained on, or a value can't be used.
    """
    return [
        TrajectoryGroup(
            [await _trajectory(backend, model, each) for each in ref.trajectories],
            id=ref.id,
            exceptions=ref.exceptions,
            metadata=ref.metadata,
            metrics=ref.metrics,
            logs=ref.logs,
        )
        for ref in refs
    ]


async def _trajectory(
    backend: Backend, model: TrainableModel[Any], ref: TrajectoryRef
) -> Trajectory:
    fields = ref.model_dump(exclude={"completion_ids", "start_time"})
    if ref.start_time is not None:
        fields["start_time"] = ref.start_time
    trajectory = Trajectory(**fields)
    if ref.completion_ids:
        records = await backend.completions(model, ref.completion_ids)
        kept = [_attributed(ref, record) for record in records]
        fill(trajectory, ClosedRollout.of(kept))
    return trajectory


def _attributed(ref: TrajectoryRef, record: Completion) -> Completion:
    """Naming a completion is what attributes one that belonged to no rollout."""
    if record.rollout_id is None:
        record = record.model_copy(update={"rollout_id": ref.rollout_id or "by-hand"})
    if not record.may_be_trained and ref.status is not TrajectoryStatus.FAILED:
        raise TrajectoryError(
            f"completion {record.id} was {record.status}",
            "It was asked again or not answered in full: use the answer that came after it.",
        )
    return record
