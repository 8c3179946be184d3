"""The gradient of a whole batch's loss, pass by pass."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from art_core.config import StepConfig
from art_core.grpo.aggregation import AGGREGATIONS
from art_core.grpo.clock import Clock
from art_core.grpo.loss import Loss, TermData, policy_loss
from art_core.grpo.policy import Policy
from art_core.grpo.rows import Batch
from art_core.grpo.tree import PackedRows


@dataclass(slots=True, eq=False)
class Pass:
    """One forward and backward pass, and what it gave in the newest update."""

    packed: PackedRows
    data: TermData
    loss: Loss | None = None
    entropy: Tensor | None = None
    """[T], in nats."""


def make_passes(
    packed: Sequence[PackedRows], batch: Batch, config: StepConfig, device: torch.device
) -> list[Pass]:
    """Give each term its advantage, and its weight in the batch's loss."""
    sizes = [len(p.term_rollout) for p in packed]
    rollout = torch.cat([torch.as_tensor(p.term_rollout) for p in packed])
    aggregate = AGGREGATIONS[config.aggregation]
    columns = (
        torch.cat([torch.as_tensor(p.sampler_logprobs).float() for p in packed]),
        torch.tensor([r.advantage for r in batch.rollouts])[rollout],
        rollout,
        aggregate(rollout, len(batch.rollouts), config.constant_length),
    )
    parts = zip(*(column.to(device).split(sizes) for column in columns), strict=True)
    return [Pass(p, TermData(*part)) for p, part in zip(packed, parts, strict=True)]


def add_gradients(
    policy: Policy, passes: Sequence[Pass], config: StepConfig, clock: Clock, seed: int
) -> None:
    """Add the gradient of the batch's loss to the parameters; fills in what the passes gave.

    Args:
        seed: of the adapter's dropout.
    """
    if policy.drops_out:  # else the first forward pass is the old policy's too
        with clock.phase("old"), torch.no_grad():
            for part in passes:
                part.data = part.data.with_old(policy.logprobs(part.packed)[0])
    if config.objective == "gspo" and _rollouts_are_split(passes):
        _add_sequence_gradients(policy, passes, config, clock, seed)
        return
    for index, part in enumerate(passes):
        with clock.phase("forward"), policy.dropout(seed + index):
            current, part.entropy = policy.logprobs(part.packed)
            part.data = part.data.with_old(current.detach())
            loss = policy_loss(current, part.data, config)
        with clock.phase("backward"):
            loss.total.backward()
        part.loss = replace(loss, total=loss.total.detach())


def _add_sequence_gradients(
    policy: Policy, passes: Sequence[Pass], config: StepConfig, clock: Clock, seed: int
) -> None:
    """`add_gradients` where a rollout's rows lie in several passes and the loss needs them at once.

    The log-probabilities of all passes are made first, without gradient; the loss's
    slopes with respect to them then stand for it in each pass.
    """
    with clock.phase("old"), torch.no_grad():
        currents: list[Tensor] = []
        for index, part in enumerate(passes):
            with policy.dropout(seed + index):
                currents.append(policy.logprobs(part.packed)[0])
            part.data = part.data.with_old(currents[-1])
    joined = torch.cat(currents).requires_grad_()
    loss = policy_loss(joined, TermData.joined([part.data for part in passes]), config)
    (slope,) = torch.autograd.grad(loss.total, joined)
    sizes = [len(current) for current in currents]
    for index, (part, slopes) in enumerate(zip(passes, slope.split(sizes), strict=True)):
        with clock.phase("forward"), policy.dropout(seed + index):
            current, part.entropy = policy.logprobs(part.packed)
        with clock.phase("backward"):
            (current * slopes).sum().backward()
    for part, own in zip(passes, loss.split(sizes), strict=True):
        part.loss = own


def _rollouts_are_split(passes: Sequence[Pass]) -> bool:
    owners = [set(part.packed.term_rollout.tolist()) for part in passes]
    return sum(len(owner) for owner in owners) > len(set[int]().union(*owners))
