"""Rollouts of a model that isn't trained here: what its calls took and came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pydantic import JsonValue

from art_core.rollouts.preflight_report import CallCheck
from art_core.trajectories import CompletionStatus, Message, Tool, Trajectory

if TYPE_CHECKING:
    from art_core.rollouts.backend import RolloutTicket
    from art_core.rollouts.model import Model

MODEL_CALLS = "model_calls"
"""Metadata of a prompted rollout: the fields of `CallTotals`, and ``model``."""

NO_CALLS = "no model call reached this rollout"


@dataclass(slots=True, kw_only=True)
class PromptedCall:
    """One call. Until it is answered it counts as abandoned."""

    messages: list[Message]
    tools: list[Tool] | None
    tags: dict[str, str] = field(default_factory=dict[str, str])
    status: CompletionStatus = CompletionStatus.ABANDONED
    response: Message | None = None
    """Of the first choice."""
    seconds: float = 0.0
    """From the request to the end of its answer."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """As the model's host counts them."""
    cost_usd: float | None = None
    """None: no price is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTotals:
    """What the answered calls of one rollout took together."""

    calls: int
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    """None: the price of one of them isn't known."""

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "calls": self.calls,
            "seconds": self.seconds,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cost_usd": self.cost_usd,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptedRollout:
    """A prompted rollout that has ended: nothing in it can be trained on."""

    model: str
    """What answered it."""
    made: list[PromptedCall]

    @property
    def calls(self) -> list[CallCheck]:
        return [
            CallCheck(
                status=call.status.value,
                prompt_tokens=call.prompt_tokens,
                sampled_tokens=call.completion_tokens,
                tags=call.tags,
            )
            for call in self.made
        ]

    def totals(self) -> CallTotals:
        answered = self._answered()
        costs = [call.cost_usd for call in answered if call.cost_usd is not None]
        return CallTotals(
            calls=len(answered),
            seconds=sum(call.seconds for call in answered),
            prompt_tokens=sum(call.prompt_tokens for call in answered),
            completion_tokens=sum(call.completion_tokens for call in answered),
            cost_usd=sum(costs) if len(costs) == len(answered) else None,
        )

    def fill(self, trajectory: Trajectory) -> None:
        """Put the last conversation and the totals into the rollout's trajectory."""
        answered = self._answered()
        if not answered:
            trajectory.log(NO_CALLS)
            return
        trajectory.metadata[MODEL_CALLS] = {"model": self.model, **self.totals().as_json()}
        last = answered[-1]
        if not trajectory.messages_and_choices and last.response is not None:
            trajectory.messages_and_choices = [*last.messages, last.response]
            trajectory.tools = last.tools

    def _answered(self) -> list[PromptedCall]:
        done = (CompletionStatus.COMPLETED, CompletionStatus.TRUNCATED)
        return [call for call in self.made if call.status in done]


@runtime_checkable
class ServesPrompted(Protocol):
    """A backend that can play rollouts of a model that isn't trained here."""

    async def open_prompted(
        self, model: Model[Any], *, tags: Mapping[str, str] | None = None
    ) -> RolloutTicket:
        """Start relaying and recording the calls of a new rollout."""
        ...

    async def close_prompted(self, model: Model[Any], rollout_id: str) -> PromptedRollout:
        """Stop relaying; return what was recorded. Calls in flight count as abandoned."""
        ...
