"""The loss of a set of trained tokens: objective, correction, KL term and aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor

from art_core.config import StepConfig
from art_core.grpo.corrections import CORRECTIONS, Bounds
from art_core.grpo.objectives import DEFAULT_CLIP, OBJECTIVES, Clip, Terms, kl_to_reference


@dataclass(frozen=True, slots=True, eq=False)
class TermData:
    """What is known of T trained tokens besides their current log-probabilities; each [T]."""

    sampler: Tensor
    """Log-probabilities as recorded when the tokens were sampled."""
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
    def joined(cls, parts: Sequence[TermData]) -> TermData:
        """The parts as one."""

        def column(name: str) -> Tensor | None:
            values = [getattr(part, name) for part in parts]
            return None if values[0] is None else torch.cat(values)

        return replace(parts[0], **{field.name: column(field.name) for field in fields(cls)})

    def with_old(self, old: Tensor) -> TermData:
        """The same with ``old``, unless it's known already."""
        return self if self.old is not None else replace(self, old=old)


@dataclass(frozen=True, slots=True, eq=False)
class Loss:
    """A loss and what it is made of; all but ``total`` are [T] and without gradient."""

    total: Tensor
    per_token: Tensor
    """Weighted: they sum to ``total``."""
    ratio: Tensor
    clipped: Tensor
    correction: Tensor
    kl: Tensor
    gap: Tensor
    """log old - log sampler"""

    def split(self, sizes: Sequence[int]) -> list[Self]:
        """The losses of consecutive terms, without gradient."""
        names = [field.name for field in fields(self) if field.name != "total"]
        columns = zip(*(getattr(self, name).split(list(sizes)) for name in names), strict=True)
        parts = [dict(zip(names, column, strict=True)) for column in columns]
        return [replace(self, total=part["per_token"].sum(), **part) for part in parts]


def policy_loss(current: Tensor, data: TermData, config: StepConfig) -> Loss:
    """``Σ weight · (correction · objective + kl_coefficient · KL)``; ``current`` is [T] fp32."""
    old = current.detach() if data.old is None else data.old
    default = DEFAULT_CLIP[config.objective]
    clip = Clip(
        default.low if config.clip_low is None else config.clip_low,
        default.high if config.clip_high is None else config.clip_high,
    )
    terms = Terms(current, old, data.advantage, data.rollout)
    objective = OBJECTIVES[config.objective](terms, clip)
    bounds = Bounds(config.correction_low, config.correction_high)
    correction = CORRECTIONS[config.correction](old, data.sampler, bounds)
    per_token = correction * objective.loss
    kl = torch.zeros_like(old)
    if data.reference is not None:
        divergence = kl_to_reference(current, data.reference)
        per_token = per_token + config.kl_coefficient * divergence
        kl = divergence.detach()
    per_token = data.weight * per_token
    return Loss(
        total=per_token.sum(),
        per_token=per_token.detach(),
        ratio=objective.ratio,
        clipped=objective.clipped,
        correction=correction,
        kl=kl,
        gap=old - data.sampler,
    )
