"""What an inference engine is: token ids in, token ids and logprobs out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from art_core.trajectories.sampling import SamplingParams

FinishReason = Literal["stop", "length"]


class AdapterRef(NamedTuple):
    """One version of one policy's LoRA adapter."""

    name: str
    step: int

    def __str__(self) -> str:
        return f"{self.name}@{self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some more sampled tokens of one completion."""

    token_ids: list[int]
    logprobs: list[float]
    """Of ``token_ids``, under the sampling policy; see `SamplingParams`."""
    top_logprobs: list[dict[int, float]] = field(default_factory=list[dict[int, float]])
    """One per token when ``sampling.top_logprobs`` > 0, else empty."""
    forced: list[bool] = field(default_factory=list[bool])
    """Tokens that are not to be trained on, one per token: the only one that
    ``sampling.grammar`` left, or one whose policy logprob the engine can't tell. Else empty."""
    finish_reason: FinishReason | None = None
    """Set on the last chunk and only there. ``stop``: a stop token was sampled (it is included)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What an engine serves."""

    engine: str
    base_model: str
    context_length: int
    vocab_size: int
    dtype: str
    device: str


class InferenceEngine(Protocol):
    """Continuous batching over one base model and any number of adapters."""

    @property
    def info(self) -> EngineInfo: ...

    def generate(
        self,
        prompt_token_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        adapter: AdapterRef | None = None,
    ) -> AsyncGenerator[Chunk]:
        """Sample a completion. Closing the generator cancels the request.

        Raises, at the first iteration:
            ContextLengthError: the prompt is empty, or prompt and ``max_tokens`` don't fit.
            EngineOverloadedError: the queue is full.
            AdapterError: ``adapter`` isn't loaded.
            GrammarError: ``sampling.grammar`` can't be compiled.
        and at any: EngineDiedError.
        """
        ...

    async def load_adapter(self, adapter: AdapterRef, path: Path) -> None:
        """Make a PEFT adapter folder usable; requests in flight aren't touched.

        Raises:
            AdapterError: the folder isn't a LoRA adapter of this base model, or the
                same name and step is loaded from another folder.
        """
        ...

    async def unload_adapter(self, adapter: AdapterRef) -> None:
        """Drop an adapter once the requests that use it have finished."""
        ...

    async def close(self) -> None:
        """Cancel what runs and free the memory."""
        ...
