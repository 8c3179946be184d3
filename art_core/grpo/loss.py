"""The loss of a set of trained tokens: objective, correction, KL term and aggregation."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from art_core.config import StepConfig
from art_core.grpo.corrections import CORRECTIONS, Bounds
from art_core.grpo.objectives import DEFAULT_CLIP, OBJECTIVES, Clip, Terms, kl_to_reference


@dataclass(frozen=True, slots=True, eq=False)
class TermData:
    """What is known of T trained tokens besides their current log-probabilities; each [T] fp32."""

    sampler: Tensor
    advantage: Tensor
    rollout: Tensor
    """int64, index into `Batch.rollouts`."""
    weight: Tensor
    """From the aggregation over the whole batch."""
    old: Tensor | None = None
    """Log-probabilities at the batch's start; None: as they are now."""
    reference: Tensor | None = None
    """… of the KL term's reference; None: no KL term."""

    @classmethod
    def joined(cls, parts: list[Self]) -> Self:
        """The parts as one."""
        columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(cls)}
        return cls(**{n: None if c[0] is None else torch.cat(c) for n, c in columns.items()})

    def with_old(self, old: Tensor) -> Self:
        return replace(self, old=old)


class Loss(NamedTuple):
    """A loss and what it is made of; all but ``loss`` are [T] and detached."""

    loss: Tensor
    per_token: Tensor
    ratio: Tensor
    clipped: Tensor
    correction: Tensor
    kl: Tensor
    gap: Tensor
    """log old - log sampler"""


def policy_loss(current: Tensor, data: TermData, config: StepConfig) -> Loss:
    """``Σ weight · (correction · objective + kl_coefficient · KL)``; ``current`` is [T] fp32."""
    old = current.detach() if data.old is None else data.old
    clip = DEFAULT_CLIP[config.objective]
    clip = Clip(
        clip.low if config.clip_low is None else config.clip_low,
        clip.high if config.clip_high is None else config.clip_high,
    )
    terms = Terms(current, old, data.advantage, data.rollout)
    objective = OBJECTIVES[config.objective](terms, clip)
    bounds = Bounds(config.correction_low, config.correction_high)
    correction = CORRECTIONS[config.correction](old, data.sampler, bounds)
    per_token = correction * objective.loss
    kl = torch.zeros_like(current)
    if data.reference is not None:
        kl = kl_to_reference(current, data.reference)
        per_token = per_token + config.kl_coefficient * kl
    return Loss(
        loss=(data.weight * per_token).sum(),
        per_token=per_token.detach(),
        ratio=objective.ratio,
        clipped=objective.clipped,
        correction=correction,
        kl=kl.detach(),
        gap=old - data.sampler,
    )
