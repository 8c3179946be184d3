"""What travels between `RemoteBackend` and ``art serve``: ids, rewards and metadata.

Completions stay on the server. A trajectory is sent as the ids of its completions and
comes back, when its rollout is closed, as messages to read: token ids and logprobs
never travel unless they are asked for by id.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    JsonValue,
    StringConstraints,
)

from art_core.config import LoraConfig, StepConfig
from art_core.rollouts.backend import RolloutMode
from art_core.rollouts.closed import ClosedRollout
from art_core.rollouts.join import unjoined_completion_ids
from art_core.rollouts.preflight_report import CallCheck
from art_core.trajectories import (
    Completion,
    ExceptionRecord,
    History,
    Message,
    Tool,
    Trajectory,
    TrajectoryGroup,
    TrajectoryStatus,
)

PREFIX = "/art/v1"
IDEMPOTENCY_HEADER = "idempotency-key"

Id = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[!-~]+$")]
"""Printable ASCII without spaces."""
Number = FiniteFloat | int | bool
JobState = Literal["queued", "running", "done", "failed"]


class Wire(BaseModel):
    """A body; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ErrorBody(Wire):
    """How every error is answered."""

    type: str
    """The name of the exception class in `art_core.errors`."""
    problem: str
    remedy: str | None = None


class ErrorAnswer(Wire):
    error: ErrorBody


class Registration(Wire):
    """A model to train."""

    base_model: Annotated[str, Field(min_length=1, max_length=500)]
    """One that the server offers."""
    lora: LoraConfig = LoraConfig()


class CheckpointView(Wire):
    step: int
    created_at: AwareDatetime
    group_ids: list[str]
    metrics: dict[str, float | None]


class MetricsView(Wire):
    step: int
    split: str
    metrics: dict[str, float | None]


class ModelView(Wire):
    """A model as the server has it."""

    name: str
    run_id: str
    base_model: str
    base_digest: str
    lora: LoraConfig
    step: int
    best: int | None
    """The checkpoint behind ``name:best``; None: no held-out reward was measured."""
    checkpoints: list[CheckpointView]
    metrics: list[MetricsView]


class ModelList(Wire):
    models: list[ModelView]


class RolloutRequest(Wire):
    mode: RolloutMode = "train"
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    tags: dict[Annotated[str, Field(max_length=200)], Annotated[str, Field(max_length=2000)]] = {}


class Ticket(Wire):
    """An open rollout; its calls go to ``/r/<rollout_id>/v1`` with ``api_key``."""

    rollout_id: str
    api_key: str
    headers: dict[str, str]
    policy_version: int


class HistoryView(Wire):
    """A conversation to read; its tokens stay on the server."""

    messages: list[Message]
    tools: list[Tool] | None
    completion_ids: list[str]
    sampled_tokens: int


class CallView(Wire):
    status: str
    prompt_tokens: int
    sampled_tokens: int
    tags: dict[str, str]
    parse_errors: list[str]


class ClosedRolloutView(Wire):
    histories: list[HistoryView]
    last: int | None
    calls: list[CallView]

    @classmethod
    def of(cls, closed: ClosedRollout) -> Self:
        return cls(
            histories=[
                HistoryView(
                    messages=[each for each in h.messages_and_choices if isinstance(each, dict)],
                    tools=h.tools,
                    completion_ids=h.completion_ids,
                    sampled_tokens=h.sampled_tokens,
                )
                for h in closed.histories
            ],
            last=closed.last,
            calls=[
                CallView(
                    status=call.status,
                    prompt_tokens=call.prompt_tokens,
                    sampled_tokens=call.sampled_tokens,
                    tags=call.tags,
                    parse_errors=call.parse_errors,
                )
                for call in closed.calls
            ],
        )

    def closed(self) -> ClosedRollout:
        return ClosedRollout(
            histories=[
                History(
                    messages_and_choices=list(each.messages),
                    tools=each.tools,
                    completion_ids=each.completion_ids,
                    sampled_elsewhere=each.sampled_tokens,
                )
                for each in self.histories
            ],
            last=self.last,
            calls=[CallCheck(**call.model_dump()) for call in self.calls],
        )


class CompletionIds(Wire):
    ids: Annotated[list[Id], Field(max_length=10_000)]


class CompletionList(Wire):
    completions: list[Completion]


class TrajectoryRef(Wire):
    """A trajectory whose completions the server has."""

    rollout_id: Id | None = None
    completion_ids: Annotated[list[Id], Field(max_length=10_000)] = []
    reward: FiniteFloat | None = None
    metrics: dict[str, Number] = {}
    metadata: dict[str, JsonValue] = {}
    logs: list[str] = []
    status: TrajectoryStatus = TrajectoryStatus.FINISHED
    error: str | None = None
    start_time: datetime | None = None

    @classmethod
    def of(cls, trajectory: Trajectory, name: str) -> Self:
        """Raises UnknownCompletionError: a Choice has no completion id."""
        recorded = [
            completion_id
            for history in (*trajectory.histories, *trajectory.additional_histories)
            for completion_id in history.completion_ids
        ]
        unjoined = unjoined_completion_ids(trajectory, name)
        return cls(
            rollout_id=trajectory.rollout_id,
            completion_ids=list(dict.fromkeys([*recorded, *unjoined])),
            reward=trajectory.reward,
            metrics=trajectory.metrics,
            metadata=trajectory.metadata,
            logs=trajectory.logs,
            status=trajectory.status,
            error=trajectory.error,
            start_time=trajectory.start_time,
        )


class GroupRef(Wire):
    id: Id
    trajectories: Annotated[list[TrajectoryRef], Field(max_length=10_000)]
    exceptions: list[ExceptionRecord] = []
    metadata: dict[str, JsonValue] = {}
    metrics: dict[str, Number] = {}
    logs: list[str] = []

    @classmethod
    def of(cls, group: TrajectoryGroup) -> Self:
        return cls(
            id=group.id,
            trajectories=[
                TrajectoryRef.of(trajectory, f"trajectory {number} of group {group.id}")
                for number, trajectory in enumerate(group.trajectories)
            ],
            exceptions=group.exceptions,
            metadata=group.metadata,
            metrics=group.metrics,
            logs=group.logs,
        )


class StepRequest(Wire):
    """One training step."""

    groups: Annotated[list[GroupRef], Field(min_length=1, max_length=10_000)]
    config: StepConfig = StepConfig()


class JobView(Wire):
    """A training step in the queue, under way or over."""

    id: str
    model: str
    state: JobState
    position: int | None = None
    """How many steps are trained before it, those of other projects included."""
    seconds: float | None = None
    """For which it has been trained."""
    step: int | None = None
    """The step that the model was at when it was done."""
    metrics: dict[str, float | None] | None = None
    error: ErrorBody | None = None


class JobList(Wire):
    jobs: list[JobView]


class LogRequest(Wire):
    groups: Annotated[list[GroupRef], Field(max_length=10_000)]
    split: Annotated[str, Field(max_length=128)]


class Metrics(Wire):
    step: int
    metrics: dict[str, float | None]


class PruneRequest(Wire):
    last: Annotated[int, Field(ge=1)] = 3
    every: Annotated[int, Field(ge=1)] | None = None
    best: Annotated[str, Field(max_length=200)] | None = None


class Steps(Wire):
    steps: list[int]
