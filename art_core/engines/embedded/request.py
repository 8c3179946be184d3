"""One completion on its way through the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from art_core.engines.embedded.grammar import TokenMask
from art_core.engines.embedded.kv import Seat
from art_core.engines.embedded.sampler import Draw, Sampled
from art_core.engines.protocol import AdapterRef, Chunk, FinishReason
from art_core.errors import EngineError
from art_core.trajectories.sampling import SamplingParams

Event = Chunk | EngineError
"""What a request's client hears: chunks, the last with a finish reason, or an error."""


class Client(Protocol):
    """Whoever waits for a request's events."""

    gone: bool
    """Nobody listens any more: the request is cancelled."""

    def send(self, event: Event) -> None: ...


@dataclass(slots=True, eq=False, kw_only=True)
class Request:
    """State of one completion; belongs to the engine's thread once submitted."""

    adapter: AdapterRef | None
    sampling: SamplingParams
    seed: int
    tokens: list[int]
    """Prompt, then what was sampled."""
    prompt_length: int
    max_length: int
    """Prompt and completion end here at the latest."""
    client: Client
    mask: TokenMask | None = None
    """What a grammar allows."""
    computed: int = 0
    """Leading tokens whose KV is in ``seat``."""
    seat: Seat | None = None
    awaited: bool = False
    """Others wait for this prompt's KV."""
    reseated: bool = False
    """It has been, and nobody waits for it again."""
    stop_token_ids: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.stop_token_ids = frozenset(self.sampling.stop_token_ids)

    @property
    def pending(self) -> int:
        """Tokens whose KV is still to be computed; the last one's logits are sampled from."""
        return len(self.tokens) - self.computed

    @property
    def in_prompt(self) -> bool:
        return self.computed < self.prompt_length

    def draw(self) -> Draw:
        legal = None if self.mask is None else self.mask.legal()
        return Draw(self.sampling, self.seed, len(self.tokens) - self.prompt_length, legal)

    def accept(self, token: int, sampled: Sampled) -> FinishReason | None:
        """Append a sampled token and tell the client; whether it was the last, and why."""
        self.tokens.append(token)
        if self.mask is not None:
            self.mask.accept(token)
        reason: FinishReason | None = None
        if token in self.stop_token_ids:
            reason = "stop"
        elif len(self.tokens) >= self.max_length:
            reason = "length"
        chunk = Chunk(
            token_ids=[token],
            logprobs=[sampled.logprob],
            top_logprobs=[sampled.top_logprobs] if self.sampling.top_logprobs else [],
            forced=[] if self.mask is None else [sampled.forced],
            finish_reason=reason,
        )
        self.client.send(chunk)
        return reason
