"""Our losses against TRL's own, on the same log-probabilities."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from trl.trainer.grpo_trainer import GRPOTrainer as TRLTrainer

from art_core.config import StepConfig
from art_core.grpo.aggregation import AGGREGATIONS
from art_core.grpo.loss import TermData, policy_loss

ROLLOUTS, LENGTH = 4, 6
MASK = torch.tensor(
    [[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0], [1, 0, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0]]
)
ADVANTAGES = torch.tensor([1.0, -0.5, 0.25, -1.5])


def logprobs() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    old = -2 + 0.5 * torch.randn(ROLLOUTS, LENGTH, generator=generator)
    noise = torch.randn(3, ROLLOUTS, LENGTH, generator=generator)
    return {
        "old": old,
        "current": old + 0.3 * noise[0],
        "sampler": old + 0.6 * noise[1],
        "reference": old + 0.3 * noise[2],
    }


class _Accelerator:
    num_processes = 1

    def gather(self, tensor: Tensor) -> Tensor:
        return tensor

    def reduce(self, tensor: Tensor, reduction: str) -> Tensor:
        return tensor


def trl_gradient(current: Tensor, given: dict[str, Tensor], **settings: Any) -> Tensor:
    """d loss / d current, from TRL's `_compute_loss` with everything around it left out."""
    trainer: Any = object.__new__(TRLTrainer)
    defaults = {
        "beta": 0.0, "epsilon_low": 0.2, "epsilon_high": 0.2, "loss_type": "grpo",
        "importance_sampling_level": "token", "use_vllm": False, "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None, "vllm_importance_sampling_correction": False,
        "max_completion_length": LENGTH, "current_gradient_accumulation_steps": 1,
        "accelerator": _Accelerator(), "model": SimpleNamespace(training=True),
        "_entropy_bonus_enabled": False, "aux_loss_enabled": False,
        "args": SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        "_metrics": {"train": defaultdict(list)},
    }  # fmt: skip
    for name, value in (defaults | settings).items():
        object.__setattr__(trainer, name, value)
    entropies = torch.zeros_like(current)
    object.__setattr__(
        trainer,
        "_get_per_token_logps_and_entropies",
        lambda *args, **kwargs: (current, entropies, None),  # pyright: ignore[reportUnknownLambdaType]
    )
    ids = torch.zeros_like(MASK)
    inputs = {
        "prompt_ids": ids, "prompt_mask": MASK, "completion_ids": ids, "completion_mask": MASK,
        "advantages": ADVANTAGES, "old_per_token_logps": given["old"],
        "ref_per_token_logps": given["reference"], "num_items_in_batch": MASK.sum(),
        "importance_sampling_ratio": given.get("ratio"),
    }  # fmt: skip
    loss = trainer._compute_loss(None, inputs)
    return torch.autograd.grad(loss, current)[0]


def our_gradient(current: Tensor, given: dict[str, Tensor], config: StepConfig) -> Tensor:
    rollout, position = MASK.nonzero(as_tuple=True)
    weights = AGGREGATIONS[config.aggregation](rollout, ROLLOUTS, config.constant_length)
    data = TermData(
        sampler=given["sampler"][rollout, position],
        advantage=ADVANTAGES[rollout],
        rollout=rollout,
        weight=weights,
        old=given["old"][rollout, position],
        reference=given["reference"][rollout, position] if config.kl_coefficient else None,
    )
    loss = policy_loss(current[rollout, position], data, config)
    return torch.autograd.grad(loss.total, current)[0]


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo": ({"objective": "grpo", "aggregation": "rollout_mean"}, {"loss_type": "grpo"}),
    "dr_grpo": (
        {"objective": "grpo", "aggregation": "constant", "constant_length": LENGTH},
        {"loss_type": "dr_grpo"},
    ),
    "dapo": (
        {"objective": "grpo", "aggregation": "token_mean", "clip_high": 0.28},
        {"loss_type": "dapo", "epsilon_high": 0.28},
    ),
    "bnpo": ({"objective": "grpo", "aggregation": "token_mean"}, {"loss_type": "bnpo"}),
    "cispo": (
        {"objective": "cispo", "clip_high": 0.3},
        {"loss_type": "cispo", "epsilon_high": 1.3},
    ),
    "gspo": (
        {"objective": "gspo", "aggregation": "rollout_mean", "clip_low": 0.1, "clip_high": 0.1},
        {"importance_sampling_level": "sequence", "epsilon_low": 0.1, "epsilon_high": 0.1},
    ),
    "kl": (
        {"objective": "grpo", "aggregation": "rollout_mean", "kl_coefficient": 0.4},
        {"loss_type": "grpo", "beta": 0.4},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_same_gradient(case: str) -> None:
    ours, theirs = CASES[case]
    given = logprobs()
    current = given["current"].requires_grad_()
    expected = trl_gradient(current, given, **theirs)
    actual = our_gradient(current, given, StepConfig(correction="none", **ours))
    assert expected.abs().sum() > 0
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("correction", ["truncate", "mask"])
def test_same_correction(correction: Any) -> None:
    """TRL makes the ratio when it generates, by these two lines of its `token_truncate` and
    `token_mask` modes."""
    given = logprobs()
    ratio = torch.exp(given["old"] - given["sampler"])
    if correction == "truncate":
        ratio = torch.clamp(ratio, max=1.4)
    else:
        ratio = ratio.masked_fill((ratio < 0.7) | (ratio > 1.4), value=0.0)
    given["ratio"] = ratio
    current = given["current"].requires_grad_()
    expected = trl_gradient(current, given, use_vllm=True, vllm_importance_sampling_correction=True)
    config = StepConfig(
        objective="grpo",
        aggregation="rollout_mean",
        correction=correction,
        correction_low=0.7,
        correction_high=1.4,
    )
    torch.testing.assert_close(our_gradient(current, given, config), expected)
