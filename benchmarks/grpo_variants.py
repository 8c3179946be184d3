# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false
"""One GRPO step on a batch: ours, and in the ways that others compute it.

Every baseline runs unmodified transformers and PEFT code with the same LoRA, in the
same dtype, without gradient checkpointing, and with rows of one length only batched
together, so that it computes no padding. Each returns the step to time.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, stdev
from typing import Any

import peft
import torch
from torch import Tensor

from art_core.config import LoraConfig, StepConfig
from art_core.grpo import GRPOTrainer
from art_core.trajectories import History, Trajectory, TrajectoryGroup
from art_core.weights.loading import BaseWeights
from benchmarks.grpo_shapes import VOCABULARY, tree_size

Step = Callable[[TrajectoryGroup], None]
Row = tuple[list[int], list[bool], float]
"""Tokens, which of them are trained, advantage."""

BATCH_TOKENS = 3072
"""Tokens in one forward pass of a baseline that has several rows; 4,096 take TRL 13 GB."""
LONG_ROW = 4096
"""Longest row of `causal`."""
SHORT_ROW = 1024
"""Longest row of `causal_rows`: attention is a small part of its work."""
LEARNING_RATE = 1e-5


def tree(weights: BaseWeights) -> Step:
    """`GRPOTrainer.step`."""
    trainer = GRPOTrainer(weights.new_model(), lora=LoraConfig(rank=8, alpha=16))
    config = StepConfig(learning_rate=LEARNING_RATE)

    def step(group: TrajectoryGroup) -> None:
        trainer.step([group], config)

    return step


def _lora() -> peft.LoraConfig:
    """PEFT's own name for the adapter that `tree` trains."""
    return peft.LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")


class _Plain:
    """A PEFT model and an optimizer, as a user would set them up."""

    def __init__(self, weights: BaseWeights) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.model: Any = peft.get_peft_model(weights.new_model(), _lora())
        self.model.eval()
        self._trained = [p for p in self.model.parameters() if p.requires_grad]
        self._adamw = torch.optim.AdamW(self._trained, lr=LEARNING_RATE)

    def update(self) -> None:
        torch.nn.utils.clip_grad_norm_(self._trained, 1.0)
        self._adamw.step()
        self._adamw.zero_grad()

    def add_gradient(self, rows: Sequence[Row], terms: int) -> None:
        """Of the batch's loss on rows of one length: full logits, log-softmax, gather."""
        tokens = torch.tensor([tokens for tokens, _, _ in rows])
        logits = self.model(input_ids=tokens, use_cache=False).logits[:, :-1]
        chosen = torch.log_softmax(logits, -1).gather(-1, tokens[:, 1:, None])[..., 0]
        masks = torch.tensor([mask[1:] for _, mask, _ in rows])
        advantages = torch.tensor([[advantage] for _, _, advantage in rows])
        (-(advantages * chosen * masks).sum() / terms).backward()


def advantages(group: TrajectoryGroup) -> list[float]:
    rewards = [t.reward for t in group if t.reward is not None]
    return [(reward - fmean(rewards)) / stdev(rewards) for reward in rewards]


def rollout_rows(group: TrajectoryGroup) -> list[Row]:
    """One row per history."""
    return [
        (history.token_ids, history.loss_mask, advantage)
        for trajectory, advantage in zip(group, advantages(group), strict=True)
        for history in trajectory.histories
    ]


def turn_rows(group: TrajectoryGroup) -> list[Row]:
    """One row per turn: everything up to the turn's end, the turn alone trained."""
    rows: list[Row] = []
    for tokens, mask, advantage in rollout_rows(group):
        following = [*mask[1:], False]
        ends = [
            i
            for i, (on, next_on) in enumerate(zip(mask, following, strict=True), 1)
            if on and not next_on
        ]
        starts = [0, *ends[:-1]]
        for start, end in zip(starts, ends, strict=True):
            rows.append((tokens[:end], [False] * start + mask[start:end], advantage))
    return rows


def batches(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows of one length, as many as `BATCH_TOKENS` hold."""
    by_length: dict[int, list[Row]] = {}
    for row in rows:
        by_length.setdefault(len(row[0]), []).append(row)
    for length, same in by_length.items():
        size = max(1, BATCH_TOKENS // length)
        for start in range(0, len(same), size):
            yield same[start : start + size]


def _in_rows(weights: BaseWeights, make: Callable[[TrajectoryGroup], list[Row]]) -> Step:
    plain = _Plain(weights)

    def step(group: TrajectoryGroup) -> None:
        rows = make(group)
        terms = sum(sum(mask) for _, mask, _ in rows)
        for batch in batches(rows):
            plain.add_gradient(batch, terms)
        plain.update()

    return step


def row_per_turn(weights: BaseWeights) -> Step:
    """Every turn of every rollout as a row of its own, full logits."""
    return _in_rows(weights, turn_rows)


def padded(weights: BaseWeights) -> Step:
    """Every rollout as a row, full logits."""
    return _in_rows(weights, rollout_rows)


def causal(weights: BaseWeights) -> Step:
    """No tree: as many tokens as ours computes in one plain row (in several where they
    don't fit one pass), logits at as many places."""
    return _plain_rows(weights, LONG_ROW)


def causal_rows(weights: BaseWeights) -> Step:
    """`causal` in rows of at most `SHORT_ROW` tokens."""
    return _plain_rows(weights, SHORT_ROW)


def _plain_rows(weights: BaseWeights, longest: int) -> Step:
    plain = _Plain(weights)

    def step(group: TrajectoryGroup) -> None:
        generator = torch.Generator().manual_seed(0)
        tokens, places = tree_size(group)
        rows = -(-tokens // longest)
        length, trained = tokens // rows, places // rows
        for _ in range(rows):
            row = torch.randint(0, VOCABULARY, (1, length + 1), generator=generator)
            at = torch.arange(length - trained, length)
            outputs = plain.model(input_ids=row[:, :-1], use_cache=False, logits_to_keep=at)
            chosen = torch.log_softmax(outputs.logits[0], -1).gather(-1, row[0, at + 1, None])
            (-chosen.sum() / places).backward()
        plain.update()

    return step


def trl(weights: BaseWeights) -> Step:
    """TRL's `GRPOTrainer._compute_loss`: fused, chunked head on the completions.

    Off CUDA, TRL takes parts of that head in fp32 whatever the model's dtype.
    """
    trainer = _trl_trainer(weights)
    model: Any = trainer.model
    trained = [p for p in model.parameters() if p.requires_grad]
    adamw = torch.optim.AdamW(trained, lr=LEARNING_RATE)

    def step(group: TrajectoryGroup) -> None:
        rows = rollout_rows(group)
        terms = torch.tensor(sum(sum(mask) for _, mask, _ in rows))
        for batch in batches(rows):
            trainer._compute_loss(model, _trl_inputs(batch, terms)).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        adamw.step()
        adamw.zero_grad()

    return step


def _trl_trainer(weights: BaseWeights) -> Any:
    """TRL's trainer with our default objective; only its loss is used."""
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer as TRLTrainer

    def no_reward(completions: list[str], **_: Any) -> list[float | None]:
        return [0.0] * len(completions)

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = GRPOConfig(
            output_dir=folder, use_cpu=True, bf16=False, loss_type="cispo", epsilon_high=5.0,
            gradient_checkpointing=False, report_to=[], num_generations=2,
            per_device_train_batch_size=2,
        )  # fmt: skip
        trainer: Any = TRLTrainer(
            model=weights.new_model(),
            reward_funcs=no_reward,
            args=arguments,
            train_dataset=Dataset.from_list([{"prompt": "a"}] * 4),
            processing_class=weights.tokenizer,
            peft_config=_lora(),
        )
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def _trl_inputs(rows: Sequence[Row], terms: Tensor) -> dict[str, Tensor]:
    tokens = torch.tensor([tokens for tokens, _, _ in rows])
    masks = torch.tensor([mask for _, mask, _ in rows]).long()
    prompt = int(masks.any(0).nonzero()[0])
    prompts, completions = tokens[:, :prompt], tokens[:, prompt:]
    return {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": completions,
        "completion_mask": torch.ones_like(completions),
        "tool_mask": masks[:, prompt:],
        "advantages": torch.tensor([advantage for _, _, advantage in rows]),
        "num_items_in_batch": terms,
    }


VARIANTS: dict[str, Callable[[BaseWeights], Step]] = {
    "tree": tree,
    "row_per_turn": row_per_turn,
    "padded": padded,
    "trl": trl,
    "causal": causal,
    "causal_rows": causal_rows,
}


def warm_up() -> TrajectoryGroup:
    """A tiny batch, to have everything loaded before the clock runs."""
    mask = [False, True, True, False]
    row = History(
        token_ids=[1, 2, 3, 4],
        loss_mask=mask,
        logprobs=[-1.0 if on else None for on in mask],
        policy_versions=[0 if on else None for on in mask],
    )
    return TrajectoryGroup([Trajectory(reward=r, histories=[row]) for r in (0.0, 1.0)])
