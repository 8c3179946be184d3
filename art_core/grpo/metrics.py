"""What a step reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, pstdev
from typing import Any

import torch
from torch import Tensor

from art_core.grpo.rows import Batch
from art_core.grpo.update import Pass
from art_core.trajectories import TrajectoryGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """Figures of one step. Those about tokens weigh each trained token alike."""

    step: int
    """Steps done, this one included."""
    applied: bool
    """False: no group had a spread of rewards, or something wasn't finite; the weights are as
    before."""
    reward_mean: float
    reward_std: float
    """Population standard deviation over all scored trajectories."""
    groups: int
    groups_without_spread: float
    """Share of groups that gave no gradient."""
    loss: float
    grad_norm: float
    """Euclidean norm over all trained parameters, before clipping."""
    learning_rate: float
    entropy: float
    """Mean entropy of the policy's next-token distribution, in nats."""
    kl: float
    """Mean k3 estimate of KL(policy ‖ reference); 0 unless ``kl_coefficient`` > 0."""
    ratio_p01: float
    ratio_p50: float
    ratio_p99: float
    """Quantiles of current / old in the last update of the batch."""
    clip_share: float
    """Share of trained tokens whose ratio was clipped, in the last update."""
    correction_mean: float
    """Mean importance weight old / sampler, as applied."""
    sampler_gap_mean: float
    """Mean of |log old - log sampler|: rounding, and how far the sampler lagged."""
    sampler_gap_max: float
    staleness: float
    """Mean of how many steps before this one the sampling policy was made."""
    tokens_trained: int
    """Sampled tokens with a part in the loss."""
    tokens_in_rows: int
    """What one row per history would have computed."""
    tokens_computed: int
    """What was computed, in one update."""
    tokens_saved: float
    """Share of ``tokens_in_rows`` that the tree saved."""
    passes: int
    """Forward passes in one update."""
    seconds_pack: float
    seconds_reference: float
    """The KL term's reference."""
    seconds_old: float
    """Log-probabilities at the batch's start, where the first forward pass doesn't give them."""
    seconds_forward: float
    seconds_backward: float
    seconds_optimizer: float
    reward_by_scenario: dict[str, float] = field(default_factory=dict[str, float])
    """Mean reward by the group's ``metadata["scenario_id"]``."""

    def flat(self) -> dict[str, float]:
        """One number per name; scenarios as ``reward/<scenario id>``."""
        values = asdict(self)
        scenarios = values.pop("reward_by_scenario")
        flat = {name: float(value) for name, value in values.items()}
        return flat | {f"reward/{name}": value for name, value in scenarios.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class FitMetrics:
    """Figures of one update on rows that aren't rewarded."""

    loss: float
    """With advantages of 1 the mean cross-entropy, in nats, before the update."""
    applied: bool
    """False: the gradient wasn't finite, and the configuration says to go on."""
    grad_norm: float
    """Euclidean norm over all trained parameters, before clipping."""
    learning_rate: float
    tokens_trained: int
    tokens_computed: int
    """Distinct tokens that the forward passes read."""


def reward_statistics(groups: Sequence[TrajectoryGroup]) -> dict[str, Any]:
    """The fields of `StepMetrics` about rewards, from all rewards that are set."""
    by_scenario: dict[str, list[float]] = {}
    rewards: list[float] = []
    for group in groups:
        scored = [t.reward for t in group if t.reward is not None]
        rewards += scored
        if scored and "scenario_id" in group.metadata:
            by_scenario.setdefault(str(group.metadata["scenario_id"]), []).extend(scored)
    return {
        "reward_mean": fmean(rewards) if rewards else 0.0,
        "reward_std": pstdev(rewards) if rewards else 0.0,
        "reward_by_scenario": {name: fmean(values) for name, values in by_scenario.items()},
    }


def token_statistics(passes: Sequence[Pass]) -> dict[str, Any]:
    """The fields of `StepMetrics` about trained tokens, from what the passes gave."""
    losses = [part.loss for part in passes if part.loss is not None]

    def column(name: str) -> Tensor:
        return torch.cat([torch.empty(0), *(getattr(loss, name).cpu().float() for loss in losses)])

    gap = column("gap").abs()
    entropy = [part.entropy.cpu() for part in passes if part.entropy is not None]
    low, middle, high = _quantiles(column("ratio"), (0.01, 0.5, 0.99))
    return {
        "loss": sum(float(loss.total) for loss in losses),
        "entropy": _mean(torch.cat([torch.empty(0), *entropy]), 0.0),
        "kl": _mean(column("kl"), 0.0),
        "ratio_p01": low,
        "ratio_p50": middle,
        "ratio_p99": high,
        "clip_share": _mean(column("clipped"), 0.0),
        "correction_mean": _mean(column("correction"), 1.0),
        "sampler_gap_mean": _mean(gap, 0.0),
        "sampler_gap_max": float(gap.max()) if len(gap) else 0.0,
    }


def count_statistics(batch: Batch, passes: Sequence[Pass], step: int) -> dict[str, Any]:
    """The fields of `StepMetrics` that count tokens, passes and the sampler's lag."""
    versions = [version for row in batch.rows for version in row.policy_versions.tolist()]
    in_rows = sum(len(row.inputs) for row in batch.rows)
    computed = sum(len(part.packed.tree.token_ids) for part in passes)
    return {
        "staleness": step - 1 - fmean(versions) if versions else 0.0,
        "tokens_trained": batch.trained_tokens,
        "tokens_in_rows": in_rows,
        "tokens_computed": computed,
        "tokens_saved": 1 - computed / in_rows if in_rows else 0.0,
        "passes": len(passes),
    }


def _mean(values: Tensor, of_nothing: float) -> float:
    return float(values.double().mean()) if len(values) else of_nothing


def _quantiles(values: Tensor, at: Sequence[float]) -> list[float]:
    """By nearest rank (torch.quantile takes 16M elements at most); 1s of an empty tensor."""
    if not len(values):
        return [1.0] * len(at)
    ordered = torch.sort(values).values
    return [float(ordered[round(q * (len(ordered) - 1))]) for q in at]
