"""How a completion is sampled."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class SamplingParams(BaseModel):
    """Sampling parameters of one completion, as the engine applies them.

    Order of operations on the raw logits ``z`` (vocabulary-sized): add
    ``logit_bias``; divide by ``temperature`` (0 means argmax); the log-softmax of
    the result is the *policy* whose log-probabilities are recorded; then
    ``grammar``, ``top_k``, ``top_p`` and ``min_p`` restrict what may be drawn. With
    ``temperature`` 0 the log-probabilities are those of temperature 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Most tokens to sample; None: as many as the context has room for."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    """Strings that end the completion; the gateway watches for them in the text."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the completion; the engine stops after sampling one."""
    logit_bias: dict[int, float] = {}
    grammar: str | None = None
    """What the completion must be up to its stop token, in the Lark dialect of llguidance
    (https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md); None: anything."""
    top_logprobs: Annotated[int, Field(ge=0, le=20)] = 0
