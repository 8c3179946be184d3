"""From token losses to one number: a weight for each trained token of the batch.

``loss = Σ weight · token loss``. Rollouts count by their sampled tokens, in however
many histories or turns those lie, so splitting a rollout changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from art_core.config import AggregationName


def rollout_mean(rollout: Tensor, rollouts: int, constant_length: int) -> Tensor:
    """``1 / (R · T_r)``: the mean over rollouts of the mean over tokens: GRPO (2402.03300)."""
    counts = torch.bincount(rollout, minlength=rollouts)
    return 1.0 / (rollouts * counts[rollout])


def token_mean(rollout: Tensor, rollouts: int, constant_length: int) -> Tensor:
    """``1 / T``: the mean over all tokens: DAPO (arXiv 2503.14476), CISPO."""
    return torch.full(rollout.shape, 1.0 / max(1, len(rollout)), device=rollout.device)


def constant(rollout: Tensor, rollouts: int, constant_length: int) -> Tensor:
    """``1 / (R · L)``, L a constant: Dr. GRPO (arXiv 2503.20783), no bias towards short answers."""
    return torch.full(rollout.shape, 1.0 / (rollouts * constant_length), device=rollout.device)


Aggregation = Callable[[Tensor, int, int], Tensor]
"""(rollout index of each of the T tokens, int64 [T]; number R of rollouts; L) to weights [T]."""

AGGREGATIONS: Mapping[AggregationName, Aggregation] = MappingProxyType(
    {"rollout_mean": rollout_mean, "token_mean": token_mean, "constant": constant}
)
