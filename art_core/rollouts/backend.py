"""What a backend is: everything that stands behind a trainable model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from art_core.config import StepConfig
from art_core.trajectories import Completion, TrajectoryGroup

if TYPE_CHECKING:
    from art_core.rollouts.model import TrainableModel

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

    async def register(self, model: TrainableModel) -> None:
        """Make the model ready to be called and trained; resumes its run if there is one."""
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

    async def close_rollout(self, model: TrainableModel, rollout_id: str) -> list[Completion]:
        """Stop serving the rollout; return its records. Calls in flight are abandoned."""
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
        """One training step on scored groups; the new adapter is live when it returns."""
        ...

    async def log(
        self, model: TrainableModel, groups: Sequence[TrajectoryGroup], *, split: str
    ) -> None:
        """Write groups and the means of their rewards and metrics to the run directory."""
        ...

    async def get_step(self, model: TrainableModel) -> int: ...

    async def close(self) -> None: ...
