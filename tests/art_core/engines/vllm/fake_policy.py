"""The language model of the fake server: a known distribution over a small vocabulary."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence

VOCAB = 64
CONTEXT = 96
BASE = "base"
"""Of no adapter."""


def logits(policy: str, tokens: Sequence[int]) -> list[float]:
    """They depend on the policy and on the last three tokens."""
    numbers = random.Random(f"{policy}:{list(tokens[-3:])}")
    return [numbers.gauss(0, 2) for _ in range(VOCAB)]


def log_softmax(values: Sequence[float]) -> list[float]:
    top = max(values)
    total = top + math.log(sum(math.exp(value - top) for value in values))
    return [value - total for value in values]


def logprob(policy: str, before: Sequence[int], token: int, temperature: float = 1.0) -> float:
    """What the engine must report."""
    return log_softmax([z / temperature for z in logits(policy, before)])[token]


def policy_of(adapter_weights: bytes) -> str:
    """An adapter's policy is its weights, whatever name it goes by."""
    return hashlib.sha256(adapter_weights).hexdigest()
