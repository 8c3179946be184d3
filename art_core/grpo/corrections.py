"""Importance correction between the policy that sampled and the one at the batch's start.

The sampler's probabilities differ from the trainer's by rounding (another kernel,
another dtype) and, when the sampler lags, by whole updates. Each correction maps
``old`` and ``sampler`` log-probabilities, [T], to weights [T] on the token losses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from art_core.config import CorrectionName


class Bounds(NamedTuple):
    low: float
    high: float


def uncorrected(old: Tensor, sampler: Tensor, bounds: Bounds) -> Tensor:
    """1."""
    return torch.ones_like(old)


def truncated(old: Tensor, sampler: Tensor, bounds: Bounds) -> Tensor:
    """``min(old / sampler, high)``: TIS (Yao et al., 2025, fengyao.notion.site/off-policy-rl)."""
    return (old - sampler).exp().clamp(max=bounds.high)


def masked(old: Tensor, sampler: Tensor, bounds: Bounds) -> Tensor:
    """``old / sampler`` where it lies in [low, high], else 0: IcePop (arXiv 2510.18855)."""
    weight = (old - sampler).exp()
    return torch.where((weight >= bounds.low) & (weight <= bounds.high), weight, 0.0)


CORRECTIONS: Mapping[CorrectionName, Callable[[Tensor, Tensor, Bounds], Tensor]] = MappingProxyType(
    {"none": uncorrected, "truncate": truncated, "mask": masked}
)
