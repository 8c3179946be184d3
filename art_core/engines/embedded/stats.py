"""What the embedded engine is doing, in numbers."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

_WINDOW_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """A snapshot. Totals count from the engine's start."""

    running: int
    waiting: int
    steps: int
    sampled_tokens: int
    tokens_per_second: float
    """Sampled, over the last 10 seconds."""
    prompt_tokens: int
    cached_prompt_tokens: int
    """Of ``prompt_tokens``, those whose KV was found rather than computed."""
    preemptions: int
    kv_tokens: int
    """Tokens of KV memory given to running requests, of ``kv_limit``."""
    kv_limit: int
    cached_blocks: int
    """Of ``cache_blocks``, those that hold finished prefixes."""
    cache_blocks: int


class TokenRate:
    """Sampled tokens in total, and per second of the recent past."""

    def __init__(self) -> None:
        self.total = 0
        self._recent: deque[tuple[float, int]] = deque()

    def add(self, tokens: int) -> None:
        self.total += tokens
        self._recent.append((time.monotonic(), tokens))
        self._forget_old()

    def per_second(self) -> float:
        self._forget_old()
        if len(self._recent) < 2:
            return 0.0
        # The first entry's tokens took the time before its stamp.
        counted = sum(tokens for _, tokens in self._recent) - self._recent[0][1]
        return counted / (time.monotonic() - self._recent[0][0])

    def _forget_old(self) -> None:
        horizon = time.monotonic() - _WINDOW_SECONDS
        while self._recent and self._recent[0][0] < horizon:
            self._recent.popleft()
