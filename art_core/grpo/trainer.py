"""`GRPOTrainer`: groups of rewarded rollouts in, a better policy out."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from art_core.config import LoraConfig, StepConfig
from art_core.errors import NonFiniteError
from art_core.grpo import checkpoint
from art_core.grpo.adapter import Adapter
from art_core.grpo.clock import Clock
from art_core.grpo.full import FullWeights
from art_core.grpo.metrics import (
    FitMetrics,
    StepMetrics,
    count_statistics,
    reward_statistics,
    token_statistics,
)
from art_core.grpo.nonfinite import find_offenders, save_offenders
from art_core.grpo.optimizer import Optimizer, learning_rate
from art_core.grpo.policy import Policy
from art_core.grpo.replicas import Replicas
from art_core.grpo.rows import Batch, collect
from art_core.grpo.tree import PackedRows
from art_core.grpo.update import Pass, add_gradients, make_passes
from art_core.trajectories import TrajectoryGroup

if TYPE_CHECKING:
    from accelerate import Accelerator

logger = logging.getLogger(__name__)

_PHASES = ("pack", "reference", "old", "forward", "backward", "optimizer")
DEFAULT_LORA = LoraConfig()


class GRPOTrainer:
    """Trains a policy on groups of rollouts.

    Args:
        model: the base. With LoRA, PEFT changes the module tree in place and the weights
            stay as they are; else the model gets fp32 weights of its own.
        lora: the adapter; None: full fine-tuning.
        config: of the steps that aren't given their own.
        seed: of the adapter's start, and of dropout.
        base_name: what a saved adapter names as its base.
        base_digest: … and the base's hash.
        quarantine: folder for rollouts whose loss or gradient isn't finite.
        accelerator: for several processes, each of which calls `step` with the same groups.

    Raises:
        ConfigError: the adapter doesn't fit the model.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        lora: LoraConfig | None = DEFAULT_LORA,
        config: StepConfig | None = None,
        seed: int = 0,
        base_name: str | None = None,
        base_digest: str | None = None,
        quarantine: Path | None = None,
        accelerator: Accelerator | None = None,
    ) -> None:
        self.config = config or StepConfig()
        self.step_index = 0
        """How many steps were done: the version of the policy."""
        self._seed = seed
        self._quarantine = quarantine
        self._replicas = Replicas(accelerator)
        self._policy = Policy(model)
        self._weights: Adapter | FullWeights = (
            FullWeights(model)
            if lora is None
            else Adapter(model, lora, seed=seed, base_name=base_name, base_digest=base_digest)
        )
        self._policy.weights_attached()
        self._optimizer = Optimizer(self._weights.parameters())
        self._tokens_that_fit = self._policy.tokens_that_fit()

    def step(
        self, groups: Sequence[TrajectoryGroup], config: StepConfig | None = None
    ) -> StepMetrics:
        """Train on scored groups; ``step_index`` grows by one, also where nothing applies.

        Raises:
            RewardError, TrajectoryError: the groups can't be trained on (see `collect`).
            NonFiniteError: loss or gradient isn't finite and the configuration says to
                stop. Weights and ``step_index`` are as before.
        """
        config = config or self.config
        clock = Clock()
        with clock.phase("pack"):
            batch = collect(groups, config.advantage)
            passes = self._plan(batch, config)
        mine = self._replicas.share(passes, whole_rollouts=config.objective == "gspo")
        if config.kl_coefficient > 0:
            with clock.phase("reference"):
                self._add_reference(mine, config)
        put_back = self._optimizer.snapshot() if config.updates_per_batch > 1 else None
        applied, grad_norm, rate = False, 0.0, learning_rate(self._optimizer.updates, config)
        for update in range(config.updates_per_batch if passes else 0):
            grad_norm = self._add_gradients(mine, config, clock, update)
            applied = math.isfinite(grad_norm)
            if not applied:
                if put_back is not None:
                    put_back()
                self._refuse(batch, mine, config)
                break
            with clock.phase("optimizer"):
                rate = self._optimizer.update(config)
        self._replicas.share_results(passes, mine)
        self.step_index += 1
        return StepMetrics(
            step=self.step_index,
            applied=applied,
            groups=len(groups),
            groups_without_spread=batch.groups_without_spread / max(1, len(groups)),
            grad_norm=grad_norm,
            learning_rate=rate,
            **reward_statistics(groups),
            **token_statistics(passes),
            **count_statistics(batch, passes, self.step_index),
            **clock.report(_PHASES),
        )

    def fit(
        self,
        batch: Batch,
        config: StepConfig,
        *,
        token_advantages: Callable[[PackedRows], Tensor] | None = None,
    ) -> FitMetrics:
        """One optimizer update on rows that aren't rewarded; ``step_index`` stays.

        With all advantages 1, the objective ``reinforce`` and no correction the loss is
        the cross-entropy of the trained tokens.

        Args:
            token_advantages: of each term of a pass, [T], in place of the rollouts'.

        Raises:
            NonFiniteError: as `step`; the weights are as before.
        """
        clock = Clock()
        passes = self._plan(batch, config)
        if token_advantages is not None:
            for part in passes:
                part.data = replace(part.data, advantage=token_advantages(part.packed))
        mine = self._replicas.share(passes, whole_rollouts=False)
        grad_norm = self._add_gradients(mine, config, clock, self._optimizer.updates)
        applied, rate = math.isfinite(grad_norm), learning_rate(self._optimizer.updates, config)
        if applied:
            rate = self._optimizer.update(config)
        else:
            self._refuse(batch, mine, config)
        self._replicas.share_results(passes, mine)
        return FitMetrics(
            loss=token_statistics(passes)["loss"],
            applied=applied,
            grad_norm=grad_norm,
            learning_rate=rate,
            tokens_trained=batch.trained_tokens,
            tokens_computed=sum(len(part.packed.tree.token_ids) for part in passes),
        )

    def cross_entropy(self, batch: Batch, config: StepConfig) -> float:
        """The mean of ``-log π`` over the trained tokens of ``batch``; nothing is trained."""
        passes = self._plan(batch, config)
        with torch.no_grad():
            losses = [-self._policy.logprobs(part.packed)[0].double().sum() for part in passes]
        return float(sum(losses)) / batch.trained_tokens

    @property
    def updates(self) -> int:
        """Optimizer updates since it was new, or restarted."""
        return self._optimizer.updates

    def restart_optimizer(self) -> None:
        """Forget moments and count: the schedule begins anew, as fits a new objective."""
        self._optimizer.restore({}, 0)

    def save(self, folder: Path) -> None:
        """Write weights, optimizer and counters into ``folder``, which exists."""
        self._weights.save(folder)
        checkpoint.save(folder, self._optimizer, self._state())

    def load(self, folder: Path) -> None:
        """Go on exactly where the trainer that wrote ``folder`` was.

        Raises:
            RunDamagedError: a file is missing, or belongs to another model or adapter.
        """
        self._weights.load(folder)
        state = checkpoint.load(folder, self._optimizer)
        self.step_index, self._seed = state.step, state.seed
        self._tokens_that_fit = state.tokens_that_fit

    def _state(self) -> checkpoint.TrainerState:
        return checkpoint.TrainerState(
            step=self.step_index,
            updates=self._optimizer.updates,
            seed=self._seed,
            tokens_that_fit=self._tokens_that_fit,
        )

    def _add_gradients(
        self, passes: Sequence[Pass], config: StepConfig, clock: Clock, update: int
    ) -> float:
        """The gradient of all processes' passes, clipped; returns its norm before."""
        add_gradients(self._policy, passes, config, clock, self._dropout_seed(update))
        with clock.phase("optimizer"):
            self._replicas.sum_gradients(self._optimizer.parameters.values())
            return self._optimizer.clip(config.max_grad_norm)

    def _dropout_seed(self, update: int) -> int:
        seeds = np.random.SeedSequence([self._seed % 2**32, self.step_index, update])
        return int(seeds.generate_state(1)[0])

    def _plan(self, batch: Batch, config: StepConfig) -> list[Pass]:
        if not batch.rows:
            return []
        max_tokens = config.max_tokens_per_pass or self._tokens_that_fit
        longest = max(len(row.inputs) for row in batch.rows)
        checkpointing = config.gradient_checkpointing
        if checkpointing is None:
            checkpointing = longest > max_tokens
            if checkpointing:
                logger.info("a row of %d tokens is recomputed in the backward pass", longest)
        self._policy.checkpoint_activations(checkpointing)
        packed = self._policy.plan(batch.rows, max_tokens)
        if len(packed) < self._replicas.count:
            tokens = sum(len(part.tree.token_ids) for part in packed)
            packed = self._policy.plan(batch.rows, math.ceil(tokens / self._replicas.count))
        return make_passes(packed, batch, config, self._policy.device)

    def _add_reference(self, passes: Sequence[Pass], config: StepConfig) -> None:
        with self._weights.reference(config.kl_adapter), torch.no_grad():
            for part in passes:
                reference, _ = self._policy.logprobs(part.packed)
                part.data = replace(part.data, reference=reference)

    def _refuse(self, batch: Batch, passes: Sequence[Pass], config: StepConfig) -> None:
        """Name and save the rollouts behind a gradient that isn't finite; the step is off."""
        offenders = find_offenders(self._policy, batch, passes, config, self._optimizer)
        names = [str(rollout.trajectory.rollout_id) for rollout in offenders]
        culprits = f"rollouts {', '.join(names)}" if names else "no rollout taken alone"
        problem = f"the gradient of step {self.step_index + 1} isn't finite: {culprits}"
        if self._quarantine is not None and offenders:
            path = save_offenders(self._quarantine, self.step_index + 1, offenders)
            problem += f" (saved in {path})"
        if config.on_nonfinite == "raise":
            raise NonFiniteError(
                problem,
                "The weights are as before. Look at these rollouts, lower learning_rate, or set "
                "on_nonfinite='skip' to go on without such steps.",
            )
        logger.warning("%s; the step is skipped", problem)
