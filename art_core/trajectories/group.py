"""The trajectories of one scenario, compared with each other by training."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast, overload
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
        try:
            message = str(error)
        except Exception as unsaid:  # noqa: BLE001  (the user's own __str__ may raise anything)
            message = (
                f"its text can't be had: {type(unsaid).__name__} in {kind.__qualname__}.__str__"
            )
        return cls(
            type=f"{kind.__module__}.{kind.__qualname__}",
            message=message,
            traceback="".join(traceback.format_exception(error)),
        )


PendingRollout = Awaitable[Trajectory] | Callable[[], Awaitable[Trajectory]]
"""A rollout to run: a coroutine, or a function that makes one (and can make it again)."""


class PendingGroup:
    """The rollouts of one scenario, not yet run: ``TrajectoryGroup(rollout(s) for _ in range(8))``.

    Awaiting it runs them all at once and gives the `TrajectoryGroup`, rollouts that
    raised among its exceptions. `art_core.gather_trajectory_groups` does so with
    limits, time-outs and progress.
    """

    def __init__(
        self,
        items: Sequence[PendingRollout | Trajectory | BaseException | dict[str, Any]],
        fields: dict[str, Any],
    ) -> None:
        self._fields = fields
        self.rollouts: list[PendingRollout] = []
        self._finished: list[Trajectory | BaseException | dict[str, Any]] = []
        for item in items:
            if isinstance(item, Trajectory | BaseException | dict):
                self._finished.append(cast("Trajectory | BaseException | dict[str, Any]", item))
            else:
                self.rollouts.append(item)

    def finished(self, results: Iterable[Trajectory | BaseException]) -> TrajectoryGroup:
        """The group, given what became of the rollouts."""
        return TrajectoryGroup([*self._finished, *results], **self._fields)

    def __await__(self) -> Generator[Any, Any, TrajectoryGroup]:
        return self._run().__await__()

    async def _run(self) -> TrajectoryGroup:
        started = [rollout() if callable(rollout) else rollout for rollout in self.rollouts]
        return self.finished(await asyncio.gather(*started, return_exceptions=True))


class TrajectoryGroup(BaseModel):
    """Trajectories of one scenario, and the exceptions of rollouts that have none.

    Built from trajectories and exceptions in any mixture. ``id`` names the
    group in the run's records: a group is trained on once. From coroutines (or
    functions without parameters that return one) a `PendingGroup` is made instead,
    to be awaited or gathered.
    """

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    trajectories: list[Trajectory]
    exceptions: list[ExceptionRecord] = []
    metadata: dict[str, MetadataValue] = {}
    metrics: dict[str, float | int | bool] = {}
    logs: list[str] = []
    id: str = Field(default_factory=lambda: uuid4().hex)

    if TYPE_CHECKING:

        @overload
        def __new__(cls, trajectories: Iterable[PendingRollout], **fields: Any) -> PendingGroup: ...
        @overload
        def __new__(
            cls,
            trajectories: Iterable[Trajectory | BaseException | dict[str, Any]] = (),
            *,
            exceptions: Iterable[BaseException | ExceptionRecord | dict[str, Any]] = (),
            **fields: Any,
        ) -> Self: ...
        @overload
        def __new__(
            cls, trajectories: Iterable[PendingRollout | Trajectory | BaseException], **fields: Any
        ) -> PendingGroup: ...

    def __new__(cls, trajectories: Iterable[Any] = (), **fields: Any) -> Any:
        items = _listed("trajectories", trajectories)
        if any(isinstance(item, Awaitable) or callable(item) for item in items):
            return PendingGroup(items, fields)
        group = super().__new__(cls)
        # ``trajectories`` may have been an iterator, which __init__ would find used up.
        vars(group)["_items"] = items
        return group

    def __init__(
        self,
        trajectories: Iterable[Trajectory | BaseException | dict[str, Any]] = (),
        *,
        exceptions: Iterable[BaseException | ExceptionRecord | dict[str, Any]] = (),
        **fields: Any,
    ) -> None:
        items: Iterable[object] = vars(self).pop("_items", trajectories)
        kept: list[Trajectory | dict[str, Any]] = []
        failed: list[Any] = _listed("exceptions", exceptions)
        for item in items:
            if isinstance(item, BaseException):
                failed.append(item)
            elif isinstance(item, Trajectory | dict):
                kept.append(cast("Trajectory | dict[str, Any]", item))
            else:
                raise TrajectoryError(
                    f"trajectories holds {item!r:.200} ({type(item).__name__})",
                    "A group is made of Trajectory objects and exceptions, or of coroutines.",
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


def _listed(name: str, given: object) -> list[Any]:
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        return list(cast("Iterable[Any]", given))
    kind = type(cast("object", given)).__name__
    raise TrajectoryError(f"{name} is {given!r:.200} ({kind})", "Pass a list, or another iterable.")
