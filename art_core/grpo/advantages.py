"""How good a rollout was, compared with the others of its group.

Each estimator maps the G ≥ 2 rewards of one group to G advantages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from types import MappingProxyType

from art_core.config import AdvantageName

Estimator = Callable[[Sequence[float]], list[float]]

STD_EPSILON = 1e-4
"""Keeps a nearly flat group from being blown up."""


def group_std(rewards: Sequence[float]) -> list[float]:
    """``(r - mean) / (std + 1e-4)``, the sample standard deviation: GRPO (arXiv 2402.03300)."""
    mean, scale = fmean(rewards), stdev(rewards) + STD_EPSILON
    return [(reward - mean) / scale for reward in rewards]


def group_mean(rewards: Sequence[float]) -> list[float]:
    """``r - mean``: Dr. GRPO (arXiv 2503.20783), no bias towards groups of little spread."""
    mean = fmean(rewards)
    return [reward - mean for reward in rewards]


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """``r_i - mean of the others``: RLOO (arXiv 2402.14740), an unbiased baseline."""
    mean, count = fmean(rewards), len(rewards)
    return [(reward - mean) * count / (count - 1) for reward in rewards]


ADVANTAGES: Mapping[AdvantageName, Estimator] = MappingProxyType(
    {"group_std": group_std, "group_mean": group_mean, "leave_one_out": leave_one_out}
)
