"""Groups to be judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from art_core.trajectories import Message, Trajectory, TrajectoryGroup
from ruler import Ruler

MakeRuler = Callable[..., Ruler]

TASK: list[Message] = [
    {"role": "system", "content": "You answer questions."},
    {"role": "user", "content": "What is the capital of France?"},
]


def trajectory(answer: str, **fields: Any) -> Trajectory:
    return Trajectory(
        messages_and_choices=[*TASK, {"role": "assistant", "content": answer}], **fields
    )


def quality_group(*qualities: float, **fields: Any) -> TrajectoryGroup:
    return TrajectoryGroup([trajectory(f"quality={q}") for q in qualities], **fields)


def rewards(group: TrajectoryGroup) -> list[float | None]:
    return [one.reward for one in group.trajectories]
