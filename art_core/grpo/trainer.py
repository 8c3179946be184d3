"""`GRPOTrainer`: groups of rewarded rollouts in, a better policy out."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from art_core.config import LoraConfig, StepConfig
from art_core.errors import NonFiniteError
from art_core.grpo import checkpoint
from art_core.grpo.adapter import Adapter, trained_parameters
from art_core.grpo.aggregation import AGGREGATIONS
from art_core.grpo.loss import Loss, TermData, policy_loss
from art_core.grpo.metrics import StepMetrics, quantiles, reward_statistics
from art_core.grpo.optimizer import Optimizer, learning_rate
from art_core.grpo.policy import Policy
from art_core.grpo.rows import Batch, collect
from art_core.grpo.tree import PackedRows
from art_core.trajectories import TrajectoryGroup


@dataclass(slots=True, eq=False)
class _Pass:
    packed: PackedRows
    data: TermData
    loss: Loss | None = None
    entropy: Tensor | None = None


class GRPOTrainer:
    """Trains a LoRA adapter on groups of rollouts.

    Args:
        model: the base; PEFT changes the module tree in place, the weights stay as they are.
        lora: the adapter.
        config: of the steps that aren't given their own.
        seed: of the adapter's start, and of dropout.
        base_name, base_digest: what a saved adapter names as its base.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        lora: LoraConfig | None = None,
        config: StepConfig | None = None,
        seed: int = 0,
        base_name: str | None = None,
        base_digest: str | None = None,
    ) -> None:
        self.config = config or StepConfig()
        self.step_index = 0
        """How many steps were done: the version of the policy."""
        self._seed = seed
        self._policy = Policy(model)
        self._adapter = Adapter(
            model, lora or LoraConfig(), seed=seed, base_name=base_name, base_digest=base_digest
        )
        self._policy.make_lean()
        self._optimizer = Optimizer(trained_parameters(model))
        self._clock = _Clock()

    def step(
        self, groups: Sequence[TrajectoryGroup], config: StepConfig | None = None
    ) -> StepMetrics:
        """Train on scored groups once; ``step_index`` grows by one, also where nothing applies.

        Raises:
            RewardError, TrajectoryError: the groups can't be trained on (see `collect`).
            NonFiniteError: loss or gradient isn't finite and the configuration says to stop;
                the weights are as before.
        """
        config = config or self.config
        self._clock = _Clock()
        with self._clock.phase("pack"):
            batch = collect(groups, config.advantage)
            passes = self._prepare(batch, config) if batch.rows else []
        grad_norm, rate = 0.0, learning_rate(self._optimizer.updates, config)
        if config.kl_coefficient > 0:
            with self._clock.phase("reference"):
                self._add_reference(passes, config)
        applied = bool(passes)
        for _ in range(config.updates_per_batch if passes else 0):
            self._backward(passes, config)
            with self._clock.phase("optimizer"):
                grad_norm = self._optimizer.clip(config.max_grad_norm)
                if not math.isfinite(grad_norm):
                    self._refuse(passes, config)
                    applied = False
                    break
                rate = self._optimizer.update(config)
        self.step_index += 1
        return self._metrics(groups, batch, passes, applied, grad_norm, rate)

    def save(self, folder: Path) -> None:
        """Write adapter, optimizer and counters into ``folder``, which exists."""
        self._adapter.save(folder)
        checkpoint.save(folder, self._optimizer, step=self.step_index, seed=self._seed)

    def load(self, folder: Path) -> None:
        """Go on exactly where the trainer that wrote ``folder`` was.

        Raises:
            RunDamagedError: a file is missing, or belongs to another model or adapter.
        """
        self._adapter.load(folder)
        self.step_index, self._seed = checkpoint.load(folder, self._optimizer)

    def _prepare(self, batch: Batch, config: StepConfig) -> list[_Pass]:
        packed = self._policy.plan(batch.rows, config.max_tokens_per_pass or 1 << 62)
        rollout = torch.as_tensor([r for p in packed for r in p.term_rollout])
        aggregate = AGGREGATIONS[config.aggregation]
        weights = aggregate(rollout, len(batch.rollouts), config.constant_length)
        advantages = torch.tensor([r.advantage for r in batch.rollouts])
        device = self._policy.model.device
        sizes = [len(p.term_rollout) for p in packed]
        return [
            _Pass(
                p,
                TermData(
                    sampler=torch.as_tensor(p.sampler_logprobs).float().to(device),
                    advantage=advantages[index].to(device),
                    rollout=index.to(device),
                    weight=weight.to(device),
                ),
            )
            for p, index, weight in zip(
                packed, rollout.split(sizes), weights.split(sizes), strict=True
            )
        ]

    def _add_reference(self, passes: list[_Pass], config: StepConfig) -> None:
        if config.kl_adapter is not None:
            self._adapter.load_reference(config.kl_adapter)
        with self._adapter.reference(), torch.no_grad():
            for part in passes:
                reference, _ = self._policy.logprobs(part.packed)
                part.data = replace(part.data, reference=reference)

    def _backward(self, passes: list[_Pass], config: StepConfig) -> None:
        """Add the gradient of the whole batch's loss to the parameters."""
        for part in passes:
            with self._clock.phase("forward"):
                current, part.entropy = self._policy.logprobs(part.packed)
                if part.data.old is None:
                    part.data = replace(part.data, old=current.detach())
                loss = policy_loss(current, part.data, config)
            with self._clock.phase("backward"):
                loss.loss.backward()
            part.loss = loss._replace(loss=loss.loss.detach())

    def _refuse(self, passes: list[_Pass], config: StepConfig) -> None:
        self._optimizer.clear()
        raise NonFiniteError("the gradient isn't finite")

    def _metrics(
        self,
        groups: Sequence[TrajectoryGroup],
        batch: Batch,
        passes: list[_Pass],
        applied: bool,
        grad_norm: float,
        rate: float,
    ) -> StepMetrics:
        mean, std, by_scenario = reward_statistics(groups)
        losses = [part.loss for part in passes if part.loss is not None]

        def joined(name: str) -> Tensor:
            return torch.cat([torch.zeros(0), *(getattr(loss, name).cpu() for loss in losses)])

        def average(values: Tensor, empty: float = 0.0) -> float:
            return float(values.double().mean()) if values.numel() else empty

        gap = joined("gap").abs()
        low, middle, high = quantiles(joined("ratio"), (0.01, 0.5, 0.99))
        entropies = torch.cat(
            [torch.zeros(0), *(p.entropy.cpu() for p in passes if p.entropy is not None)]
        )
        versions = [v for row in batch.rows for v in row.policy_versions.tolist()]
        in_rows = sum(len(row.inputs) for row in batch.rows)
        computed = sum(len(part.packed.tree.token_ids) for part in passes)
        return StepMetrics(
            step=self.step_index,
            applied=applied,
            reward_mean=mean,
            reward_std=std,
            groups=len(groups),
            groups_without_spread=batch.groups_without_spread / max(1, len(groups)),
            loss=sum(float(loss.loss) for loss in losses),
            grad_norm=grad_norm,
            learning_rate=rate,
            entropy=average(entropies),
            kl=average(joined("kl")),
            ratio_p01=low,
            ratio_p50=middle,
            ratio_p99=high,
            clip_share=average(joined("clipped")),
            correction_mean=average(joined("correction"), 1.0),
            sampler_gap_mean=average(gap),
            sampler_gap_max=float(gap.max()) if gap.numel() else 0.0,
            staleness=self.step_index - 1 - sum(versions) / len(versions) if versions else 0.0,
            tokens_trained=batch.trained_tokens,
            tokens_in_rows=in_rows,
            tokens_computed=computed,
            tokens_saved=1 - computed / in_rows if in_rows else 0.0,
            passes=len(passes),
            reward_by_scenario=by_scenario,
            **{f"seconds_{name}": self._clock.seconds[name] for name in _PHASES},
        )


_PHASES = ("pack", "reference", "forward", "backward", "optimizer")


class _Clock:
    """Seconds spent by phase."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - started
