"""What a backend is: everything that stands behind a trainable model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from art_core.config import SftConfig, StepConfig
from art_core.trajectories import Completion, TrajectoryGroup

if TYPE_CHECKING:
    from pathlib import Path

    from art_core.rollouts.closed import ClosedRollout
    from art_core.rollouts.model import Model, TrainableModel
    from art_core.runs import RunDirectory

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""What this machine is called by itself."""

RolloutMode = Literal["train", "eval"]
"""In ``train`` the agent's temperature, top-p and top-k are overridden with 1, 1 and off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutTicket:
    """How the calls of one rollout reach the policy and are attributed to it."""

    rollout_id: str
    base_url: str
    """``http://host:port/r/<rollout>/v1``: enough on its own, in any process or language."""
    api_key: str
    """Minted for this rollout: attributes a call also at the gateway's plain ``/v1``."""
    headers: Mapping[str, str]
    """Likewise, as headers."""
    policy_version: int
    """The step that this rollout is pinned to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """What a training step did."""

    step: int
    """The step that the model is at now."""
    metrics: dict[str, float] = field(default_factory=dict[str, float])


class Backend(Protocol):
    """Serves a model's newest adapter, records its calls and trains it."""

    async def register(self, model: Model[Any]) -> None:
        """Open the model's run directory, or go on with the run that is in it.

        A `TrainableModel` is then served: its ``inference_base_url``,
        ``inference_api_key`` and ``inference_model_name`` are set. A plain `Model`
        (one that is only compared with) gets a run directory to log to.

        Raises:
            RunLockedError: another process uses the directory.
            RunMismatchError: it belongs to another base model or adapter shape.
        """
        ...

    def run_directory(self, model: Model[Any]) -> RunDirectory:
        """The registered model's run directory, open and locked: where the training
        loop keeps its journal, metrics and plot."""
        ...

    async def open_rollout(
        self,
        model: TrainableModel,
        *,
        mode: RolloutMode,
        seed: int | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> RolloutTicket:
        """Start attributing calls to a new rollout, pinned to the newest policy version."""
        ...

    async def close_rollout(self, model: TrainableModel, rollout_id: str) -> ClosedRollout:
        """Stop serving the rollout; return what was recorded. Calls in flight are abandoned."""
        ...

    async def completions(
        self, model: TrainableModel, completion_ids: Sequence[str]
    ) -> list[Completion]:
        """The records with these ids, in that order.

        Raises:
            UnknownCompletionError: there is no such record.
        """
        ...

    async def train(
        self, model: TrainableModel, groups: Sequence[TrajectoryGroup], config: StepConfig
    ) -> TrainResult:
        """One training step on scored groups; the new adapter is live when it returns.

        Calls `art_core.rollouts.prepare_groups` first, so that hand-built
        trajectories are joined with their records and what can't be trained on is
        refused; commits with `RunDirectory.commit`. Once begun it isn't cancelled.
        """
        ...

    async def log(
        self, model: Model[Any], groups: Sequence[TrajectoryGroup], *, split: str
    ) -> None:
        """Write groups and the means of their rewards and metrics to the run directory
        (`RunDirectory.log_groups`)."""
        ...

    async def get_step(self, model: TrainableModel) -> int:
        """How many training steps the served adapter has had."""
        ...

    async def close(self) -> None:
        """Stop serving and let go of the run directories."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SftProgress:
    """How far learning from examples has come."""

    done: int
    """Optimizer updates, of ``total``."""
    total: int
    loss: float
    """Mean cross-entropy of the newest batch, in nats per trained token."""


OnSftProgress = Callable[[SftProgress], None]


@runtime_checkable
class LearnsFromExamples(Protocol):
    """A backend that can give a model a warm start."""

    async def train_sft(
        self,
        model: TrainableModel[Any],
        examples: str | Path,
        config: SftConfig | None = None,
        *,
        validation: str | Path | None = None,
        on_progress: OnSftProgress | None = None,
    ) -> TrainResult:
        """Learn from a file of conversations. All of it is one step of the run; the new
        adapter is live when it returns."""
        ...
