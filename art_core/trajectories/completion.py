"""One model call as the engine saw it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, JsonValue, model_validator

from art_core.trajectories.sampling import SamplingParams

Message = dict[str, JsonValue]
"""A chat message as OpenAI's API spells it."""
Tool = dict[str, JsonValue]
"""A tool as OpenAI's API spells it: ``{"type": "function", "function": {…}}``."""


class CompletionStatus(StrEnum):
    COMPLETED = "completed"
    """Ended by itself: end of turn, stop string or tool call."""
    TRUNCATED = "truncated"
    """Ended by a token limit. Sampled in earnest, so it may be trained on."""
    ABANDONED = "abandoned"
    """The client hung up, or asked again. Kept, never trained on."""
    FAILED = "failed"
    """The engine failed. Kept, never trained on."""


TokenId = Annotated[int, Field(ge=0, lt=2**32)]


class Completion(BaseModel):
    """The record of one sampled choice.

    ``completion_token_ids``, ``logprobs`` and ``trainable`` have the same length.
    ``logprobs`` are natural logarithms under the sampling policy: temperature
    and logit bias applied, before top-k, top-p, min-p and grammar masks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    request_id: str
    """Shared by the ``n`` choices of one request."""
    rollout_id: str | None
    """None: the call couldn't be attributed (quarantined)."""
    policy: str
    policy_version: Annotated[int, Field(ge=0)]
    messages: list[Message]
    tools: list[Tool] | None = None
    sampling: SamplingParams
    response: Message
    prompt_token_ids: list[TokenId]
    completion_token_ids: list[TokenId]
    logprobs: list[FiniteFloat]
    trainable: list[bool]
    """False where there was no choice: one legal token under a grammar, or after a stop string."""
    finish_reason: str
    status: CompletionStatus
    tags: dict[str, str] = {}
    """Names from framework adapters: node, run id, agent. Training never reads them."""
    parse_errors: list[str] = []
    """What was malformed in the sampled text, a tool call for instance."""
    started_at: float
    """Seconds since the epoch."""
    finished_at: float

    @model_validator(mode="after")
    def _same_length(self) -> Self:
        lengths = {
            "completion_token_ids": len(self.completion_token_ids),
            "logprobs": len(self.logprobs),
            "trainable": len(self.trainable),
        }
        if len(set(lengths.values())) > 1:
            raise ValueError(f"per-token lists differ in length: {lengths}")
        return self

    @property
    def may_be_trained(self) -> bool:
        """Whether the rules let this completion into a training batch."""
        return self.rollout_id is not None and self.status in (
            CompletionStatus.COMPLETED,
            CompletionStatus.TRUNCATED,
        )
