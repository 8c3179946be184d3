"""What a step reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, pstdev

import torch
from torch import Tensor

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


def reward_statistics(groups: Sequence[TrajectoryGroup]) -> tuple[float, float, dict[str, float]]:
    """Mean, standard deviation and mean by scenario of all rewards that are set."""
    by_scenario: dict[str, list[float]] = {}
    rewards: list[float] = []
    for group in groups:
        scored = [t.reward for t in group if t.reward is not None]
        rewards += scored
        if scored and "scenario_id" in group.metadata:
            by_scenario.setdefault(str(group.metadata["scenario_id"]), []).extend(scored)
    if not rewards:
        return 0.0, 0.0, {}
    means = {name: fmean(values) for name, values in by_scenario.items()}
    return fmean(rewards), pstdev(rewards), means


def quantiles(values: Tensor, at: Sequence[float]) -> list[float]:
    """Quantiles of [T] values by nearest rank; of an empty tensor, 1s (torch.quantile is limited
    to 16M elements)."""
    if values.numel() == 0:
        return [1.0] * len(at)
    ordered = torch.sort(values.float()).values
    return [float(ordered[round(q * (len(ordered) - 1))]) for q in at]
