"""Policy objectives: one loss per trained token, to be minimised.

All tensors are [T], one entry per trained token. ``ratio = current / old`` is the
policy's probability of the token now over that at the start of the batch; ``A`` is
the advantage of the token's rollout. What the sampler's own probabilities say is
corrected apart, in `corrections`, so nothing is corrected twice.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from art_core.config import ObjectiveName


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The T trained tokens of a batch, or of a part of it that holds whole rollouts."""

    current: Tensor
    """Log-probabilities under the policy as it is; carries the gradient."""
    old: Tensor
    """… under the policy at the start of this batch; no gradient."""
    advantage: Tensor
    rollout: Tensor
    """int64: which rollout the token belongs to."""


class Clip(NamedTuple):
    """The ratio is bounded to [1 - low, 1 + high]."""

    low: float
    high: float


class TokenLoss(NamedTuple):
    loss: Tensor
    ratio: Tensor
    """Of the token, or of its sequence; detached."""
    clipped: Tensor
    """bool: the bound took away the token's gradient, or bounded its weight."""


Objective = Callable[[Terms, Clip], TokenLoss]


def cispo(terms: Terms, clip: Clip) -> TokenLoss:
    """``-sg(clip(ratio)) · A · log π``: CISPO (MiniMax-M1, arXiv 2506.13585).

    The ratio is a bounded, constant weight on REINFORCE, so that no token loses its gradient.
    """
    ratio = (terms.current.detach() - terms.old).exp()
    weight = ratio.clamp(1 - clip.low, 1 + clip.high)
    return TokenLoss(-weight * terms.advantage * terms.current, ratio, weight != ratio)


def grpo(terms: Terms, clip: Clip) -> TokenLoss:
    """``-min(ratio · A, clip(ratio) · A)``: PPO's clip (arXiv 1707.06347), GRPO (2402.03300).

    With ``high`` above ``low`` it is DAPO's clip-higher (arXiv 2503.14476).
    """
    ratio = (terms.current - terms.old).exp()
    return _clipped(ratio, terms.advantage, clip)


def gspo(terms: Terms, clip: Clip) -> TokenLoss:
    """`grpo` with the sequence's ratio, ``exp(mean over its tokens of (current - old))``: GSPO
    (arXiv 2507.18071). A sequence is all the sampled tokens of a rollout.
    """
    log_ratio = terms.current - terms.old
    rollouts, index, counts = torch.unique(terms.rollout, return_inverse=True, return_counts=True)
    means = log_ratio.new_zeros(len(rollouts)).index_add(0, index, log_ratio) / counts
    return _clipped(means[index].exp(), terms.advantage, clip)


def reinforce(terms: Terms, clip: Clip) -> TokenLoss:
    """``-A · log π`` (Williams, 1992); with leave-one-out advantages it is RLOO (2402.14740)."""
    ratio = (terms.current.detach() - terms.old).exp()
    never = torch.zeros_like(ratio, dtype=torch.bool)
    return TokenLoss(-terms.advantage * terms.current, ratio, never)


def _clipped(ratio: Tensor, advantage: Tensor, clip: Clip) -> TokenLoss:
    free, bounded = ratio * advantage, ratio.clamp(1 - clip.low, 1 + clip.high) * advantage
    return TokenLoss(-torch.minimum(free, bounded), ratio.detach(), (bounded < free).detach())


OBJECTIVES: Mapping[ObjectiveName, Objective] = MappingProxyType(
    {"cispo": cispo, "grpo": grpo, "gspo": gspo, "reinforce": reinforce}
)
DEFAULT_CLIP: Mapping[ObjectiveName, Clip] = MappingProxyType(
    {
        "cispo": Clip(1.0, 4.0),
        "grpo": Clip(0.2, 0.2),
        "gspo": Clip(3e-4, 4e-4),
        "reinforce": Clip(1.0, float("inf")),
    }
)
"""What the papers use; CISPO bounds the ratio from above only."""


def kl_to_reference(current: Tensor, reference: Tensor) -> Tensor:
    """``exp(d) - d - 1`` with ``d = reference - current``, [T]: the k3 estimate of
    KL(policy ‖ reference), never negative (Schulman, joschu.net/blog/kl-approx.html)."""
    difference = reference - current
    return difference.exp() - difference - 1
