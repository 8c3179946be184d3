"""After a loss or a gradient that isn't finite: whose was it?"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from art_core.config import StepConfig
from art_core.grpo.clock import Clock
from art_core.grpo.optimizer import Optimizer
from art_core.grpo.policy import Policy
from art_core.grpo.rows import Batch, Rollout, Row
from art_core.grpo.tree import pack, sort_rows
from art_core.grpo.update import Pass, add_gradients, make_passes


def find_offenders(
    policy: Policy, batch: Batch, passes: Sequence[Pass], config: StepConfig, optimizer: Optimizer
) -> list[Rollout]:
    """The rollouts whose loss, or else whose gradient taken alone, isn't finite.

    Leaves no gradients behind.
    """
    optimizer.clear()
    offenders: set[int] = set()
    for part in passes:
        if part.loss is not None:
            bad = ~torch.isfinite(part.loss.per_token)
            offenders |= set(part.data.rollout[bad].tolist())
    for index in range(len(batch.rollouts)) if not offenders else ():
        rows = [row for row in batch.rows if row.rollout == index]
        if rows and not _gradient_is_finite(policy, rows, batch, config, optimizer):
            offenders.add(index)
    return [batch.rollouts[index] for index in sorted(offenders)]


def save_offenders(folder: Path, step: int, offenders: Sequence[Rollout]) -> Path:
    """Write the offending trajectories, one JSON object a line; returns the file."""
    path = folder / f"nonfinite-step-{step}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [rollout.trajectory.model_dump_json() + "\n" for rollout in offenders]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _gradient_is_finite(
    policy: Policy, rows: Sequence[Row], batch: Batch, config: StepConfig, optimizer: Optimizer
) -> bool:
    alone = replace(batch, rows=list(rows))
    passes = make_passes([pack(sort_rows(rows))], alone, config, policy.device)
    add_gradients(policy, passes, config, Clock(), seed=0)
    norm = optimizer.gradient_norm()
    optimizer.clear()
    return math.isfinite(norm)
