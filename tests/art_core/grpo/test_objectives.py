"""Each formula against values worked out by hand."""
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from art_core.grpo.advantages import group_mean, group_std, leave_one_out
from art_core.grpo.aggregation import constant, rollout_mean, token_mean
from art_core.grpo.corrections import Bounds, masked, truncated, uncorrected
from art_core.grpo.objectives import (
    Clip,
    Objective,
    Terms,
    cispo,
    grpo,
    gspo,
    kl_to_reference,
    reinforce,
)

LOG2 = math.log(2)


def terms(ratios: list[float], advantages: list[float], rollouts: list[int] | None = None) -> Terms:
    """Tokens whose old probability is e⁻² and whose current one is ``ratio`` times that."""
    old = torch.full((len(ratios),), -2.0)
    current = (old + torch.tensor(ratios).log()).requires_grad_()
    rollout = torch.tensor(rollouts or [0] * len(ratios))
    return Terms(current, old, torch.tensor(advantages), rollout)


def loss_and_slope(objective: Objective, given: Terms, clip: Clip) -> tuple[Tensor, Tensor]:
    result = objective(given, clip)
    (slope,) = torch.autograd.grad(result.loss.sum(), given.current)
    return result.loss.detach(), slope


def close(actual: Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected))


def test_cispo() -> None:
    given = terms([0.5, 1.0, 8.0], [1.0, -2.0, 3.0])
    loss, slope = loss_and_slope(cispo, given, Clip(1.0, 4.0))
    # weights 0.5, 1, 5 (bounded); log π = -2 + log ratio
    close(loss, [0.5 * (2 + LOG2), -4.0, -15 * (-2 + math.log(8))])
    close(slope, [-0.5, 2.0, -15.0])  # the bounded token keeps its gradient
    assert cispo(given, Clip(1.0, 4.0)).clipped.tolist() == [False, False, True]


def test_grpo() -> None:
    given = terms([0.5, 0.5, 1.0, 1.5, 1.5], [1.0, -1.0, 2.0, 1.0, -1.0])
    loss, slope = loss_and_slope(grpo, given, Clip(0.2, 0.3))
    # -min(r A, clip(r) A): clipped below with A < 0, and above with A > 0
    close(loss, [-0.5, 0.8, -2.0, -1.3, 1.5])
    close(slope, [-0.5, 0.0, -2.0, 0.0, 1.5])
    clipped = grpo(given, Clip(0.2, 0.3)).clipped
    assert clipped.tolist() == [False, True, False, True, False]


def test_gspo() -> None:
    given = terms([2.0, 0.5, 2.0, 2.0], [1.0, 1.0, -1.0, -1.0], [4, 4, 9, 9])
    loss, slope = loss_and_slope(gspo, given, Clip(0.2, 0.2))
    # sequence ratios: sqrt(2 · 0.5) = 1 and sqrt(2 · 2) = 2; A < 0 isn't clipped above
    close(loss, [-1.0, -1.0, 2.0, 2.0])
    # d/d logp of the sum over the sequence's 2 tokens: 2 · ratio · (-A) / 2
    close(slope, [-1.0, -1.0, 2.0, 2.0])


def test_gspo_counts_all_histories_of_a_rollout_as_one_sequence() -> None:
    together = terms([2.0, 2.0, 0.25], [1.0] * 3, [0, 0, 0])
    loss, _ = loss_and_slope(gspo, together, Clip(9.0, 9.0))
    close(loss, [-1.0] * 3)


def test_reinforce() -> None:
    loss, slope = loss_and_slope(reinforce, terms([1.0, 3.0], [2.0, -1.0]), Clip(0.0, 0.0))
    close(loss, [4.0, -2.0 + math.log(3)])
    close(slope, [-2.0, 1.0])


def test_kl() -> None:
    current = torch.tensor([-1.0, -2.0], requires_grad=True)
    reference = torch.tensor([-1.0, -2.0 + LOG2])
    divergence = kl_to_reference(current, reference)
    close(divergence.detach(), [0.0, 2 - LOG2 - 1])
    (slope,) = torch.autograd.grad(divergence.sum(), current)
    close(slope, [0.0, 1 - 2.0])


def test_corrections() -> None:
    sampler = torch.zeros(4) - 3
    old = sampler + torch.tensor([0.25, 0.5, 1.5, 4.0]).log()
    bounds = Bounds(0.5, 2.0)
    close(uncorrected(old, sampler, bounds), [1.0] * 4)
    close(truncated(old, sampler, bounds), [0.25, 0.5, 1.5, 2.0])
    close(masked(old, sampler, Bounds(0.4999, 2.0)), [0.0, 0.5, 1.5, 0.0])


def test_advantages() -> None:
    rewards = [0.0, 1.0, 5.0]
    assert group_mean(rewards) == [-2.0, -1.0, 3.0]
    assert leave_one_out(rewards) == pytest.approx([0 - 3, 1 - 2.5, 5 - 0.5])
    deviation = math.sqrt((4 + 1 + 9) / 2) + 1e-4
    assert group_std(rewards) == pytest.approx([-2 / deviation, -1 / deviation, 3 / deviation])


def test_aggregations() -> None:
    rollout = torch.tensor([0, 0, 0, 2])  # rollout 1 sampled nothing
    close(token_mean(rollout, 3, 10), [0.25] * 4)
    close(constant(rollout, 3, 10), [1 / 30] * 4)
    close(rollout_mean(rollout, 3, 10), [1 / 9, 1 / 9, 1 / 9, 1 / 3])
