"""The trajectories of one scenario, compared with each other by training."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from typing import Any, Self, cast
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

from art_core.errors import TrajectoryError
from art_core.trajectories.trajectory import MetadataValue, Trajectory


class ExceptionRecord(BaseModel):
    """An exception that ended a rollout, as text."""

    model_config = ConfigDict(frozen=True)

    type: str
    message: str
    traceback: str

    @classmethod
    def of(cls, error: BaseException) -> Self:
        kind = type(error)
        return cls(
            type=f"{kind.__module__}.{kind.__qualname__}",
            message=str(error),
            traceback="".join(traceback.format_exception(error)),
        )


class TrajectoryGroup(BaseModel):
    """Trajectories of one scenario, and the exceptions of rollouts that have none.

    Built from trajectories and exceptions in any mixture. ``id`` names the
    group in the run's records: a group is trained on once.
    """

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    trajectories: list[Trajectory]
    exceptions: list[ExceptionRecord] = []
    metadata: dict[str, MetadataValue] = {}
    metrics: dict[str, float | int | bool] = {}
    logs: list[str] = []
    id: str = Field(default_factory=lambda: uuid4().hex)

    def __init__(
        self,
        trajectories: Iterable[Trajectory | BaseException | dict[str, Any]] = (),
        *,
        exceptions: Iterable[BaseException | ExceptionRecord | dict[str, Any]] = (),
        **fields: Any,
    ) -> None:
        kept: list[Trajectory | dict[str, Any]] = []
        failed: list[BaseException | ExceptionRecord | dict[str, Any]] = list(exceptions)
        for item in trajectories:
            if isinstance(item, BaseException):
                failed.append(item)
            elif isinstance(cast("object", item), Trajectory | dict):
                kept.append(item)
            else:
                raise TrajectoryError(
                    f"trajectories holds {item!r:.200} ({type(item).__name__})",
                    "A group is made of Trajectory objects and exceptions; await coroutines "
                    "first, or pass them to art.gather_trajectory_groups.",
                )
        records = [
            ExceptionRecord.of(error) if isinstance(error, BaseException) else error
            for error in failed
        ]
        super().__init__(trajectories=kept, exceptions=records, **fields)

    def __iter__(self) -> Iterator[Trajectory]:  # type: ignore[override]
        return iter(self.trajectories)

    def __len__(self) -> int:
        return len(self.trajectories)
