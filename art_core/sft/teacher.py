# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""On-policy distillation: a teacher marks each token that the policy has sampled."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from art_core.config import StepConfig
from art_core.errors import ConfigError, TrajectoryError
from art_core.grpo import GRPOTrainer
from art_core.grpo.policy import Policy
from art_core.grpo.rows import Batch, Rollout, trajectory_rows
from art_core.grpo.tree import PackedRows
from art_core.trajectories import TrajectoryGroup, TrajectoryStatus
from art_core.weights.loading import BaseWeights


class Teacher:
    """A local model whose log-probabilities the policy is drawn to.

    Args:
        adapter: folder of a PEFT adapter of ``weights``; None: the bare model.

    Raises:
        ConfigError: the folder doesn't hold such an adapter.
    """

    def __init__(self, weights: BaseWeights, adapter: Path | None = None) -> None:
        self._weights = weights
        model = weights.new_model()
        self._policy = Policy(model)
        if adapter is not None:
            _attach(model, adapter)
        self._policy.weights_attached()

    def check_speaks(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Refuse a policy whose token ids mean something else to this teacher.

        Raises:
            ConfigError: their vocabularies differ.
        """
        own: dict[str, Any] = self._weights.tokenizer.get_vocab()
        if own != tokenizer.get_vocab():
            raise ConfigError(
                f"the teacher {self._weights.files.name} has another vocabulary than the policy",
                "Use a teacher of the same family, or learn from what a teacher says "
                "(art_core.sft.demonstrations).",
            )

    def advantages(self, packed: PackedRows) -> Tensor:
        """``log teacher - log policy`` of each sampled token, [T].

        With them as advantages a policy-gradient step goes down the reverse KL divergence
        KL(policy ‖ teacher) of each token (on-policy distillation; GKD, arXiv 2306.13649).
        """
        with torch.no_grad():
            teacher, _ = self._policy.logprobs(packed)
        return teacher - torch.as_tensor(packed.sampler_logprobs).to(teacher)


def distil(
    trainer: GRPOTrainer, groups: Sequence[TrajectoryGroup], teacher: Teacher, config: StepConfig
) -> dict[str, float]:
    """A step of ``trainer`` towards ``teacher``; returns its figures.

    ``distil/reverse_kl`` is the mean of log policy - log teacher over the sampled tokens.

    Raises:
        TrajectoryError: nothing was recorded.
        NonFiniteError: see `GRPOTrainer.fit`.
    """
    apart: list[Tensor] = []

    def mark(packed: PackedRows) -> Tensor:
        advantages = teacher.advantages(packed)
        apart.append(-advantages.cpu())
        return advantages

    metrics = trainer.fit(sampled_batch(groups), config, token_advantages=mark)
    trainer.step_index += 1
    return {
        "distil/reverse_kl": float(torch.cat(apart).double().mean()),
        "distil/applied": float(metrics.applied),
        "grad_norm": metrics.grad_norm,
        "learning_rate": metrics.learning_rate,
        "tokens_trained": float(metrics.tokens_trained),
        "tokens_computed": float(metrics.tokens_computed),
    }


def sampled_batch(groups: Sequence[TrajectoryGroup]) -> Batch:
    """All that the policy sampled in these rollouts; rewards don't matter.

    Raises:
        TrajectoryError: nothing was recorded.
    """
    trajectories = [
        (index, trajectory)
        for index, group in enumerate(groups)
        for trajectory in group
        if trajectory.status is not TrajectoryStatus.FAILED
    ]
    rows = [
        row
        for number, (_, trajectory) in enumerate(trajectories)
        for row in trajectory_rows(trajectory, number)
    ]
    if not rows:
        raise TrajectoryError(
            "the rollouts have no sampled tokens", "Play them inside model.rollout()."
        )
    rollouts = [Rollout(trajectory, index, 1.0) for index, trajectory in trajectories]
    return Batch(rollouts, rows, groups_without_spread=0)


def _attach(model: PreTrainedModel, adapter: Path) -> None:
    with warnings.catch_warnings():
        # PEFT reads a property that transformers has renamed.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        try:
            PeftModel.from_pretrained(model, str(adapter), is_trainable=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"the teacher's adapter is {adapter}: {error}",
                "Give the folder of a PEFT adapter of the teacher's base model.",
            ) from error
