"""Examples as batches of the trainer, and the settings under which they are learned."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from art_core.config import SftConfig, StepConfig
from art_core.grpo.rows import Batch, Rollout, Row
from art_core.rollouts.helpers import shuffled
from art_core.sft.conversations import TokenRow
from art_core.sft.examples import Prepared
from art_core.trajectories import Trajectory


def total_updates(examples: int, config: SftConfig) -> int:
    """Optimizer updates of a whole run."""
    return config.epochs * math.ceil(examples / config.batch_size)


def batch_of_update(examples: Sequence[Prepared], config: SftConfig, update: int) -> list[Prepared]:
    """The examples of an update (0 is the first): each comes once in an epoch.

    An epoch's last batch may be smaller. It follows from the seed alone, so a run that
    goes on learns what it would have learned undisturbed.
    """
    per_epoch = math.ceil(len(examples) / config.batch_size)
    epoch, place = divmod(update, per_epoch)
    order = shuffled(len(examples), config.seed, epoch)
    start = place * config.batch_size
    return [examples[index] for index in order[start : start + config.batch_size]]


def step_config(config: SftConfig, updates: int) -> StepConfig:
    """Cross-entropy over the trained tokens of a batch: ``-1/T Σ log π``.

    As REINFORCE with advantages of 1 and no correction, which is the same formula.
    """
    warmup = min(round(config.warmup_share * updates), updates - 1)
    return StepConfig(
        objective="reinforce",
        correction="none",
        aggregation="token_mean",
        learning_rate=config.learning_rate,
        schedule=config.schedule,
        warmup_updates=warmup,
        schedule_updates=updates,
        max_grad_norm=config.max_grad_norm,
        weight_decay=config.weight_decay,
        max_tokens_per_pass=config.max_tokens_per_pass,
    )


def to_batch(examples: Sequence[Prepared]) -> Batch:
    """The rows of examples, each with an advantage of 1."""
    rollouts = [Rollout(Trajectory(rollout_id=e.where), 0, 1.0) for e in examples]
    rows = [_row(row, index) for index, example in enumerate(examples) for row in example.rows]
    return Batch(rollouts, rows, groups_without_spread=0)


def _row(row: TokenRow, example: int) -> Row:
    trained = np.flatnonzero(np.asarray(row.trained, dtype=bool))
    return Row(
        rollout=example,
        token_ids=np.asarray(row.token_ids, dtype=np.int64),
        trained=trained,
        sampler_logprobs=np.zeros(len(trained)),
        policy_versions=np.zeros(len(trained), dtype=np.int64),
    )
