# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false
"""Loss and gradient are those of a cross-entropy written out by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from art_core.config import LoraConfig, SftConfig, StepConfig
from art_core.grpo import GRPOTrainer
from art_core.sft.batches import batch_of_update, step_config, to_batch, total_updates
from art_core.sft.conversations import TokenRow
from art_core.sft.examples import Prepared
from tests.art_core.grpo.conftest import VOCABULARY, _model
from tests.art_core.grpo.test_gradient import norm, untouched

TOLERANCE = 1e-5


def examples(count: int, seed: int = 0) -> list[Prepared]:
    """Rows that begin alike, of different lengths, with trained runs in them."""
    chance = random.Random(seed)
    prefix = [chance.randrange(3, VOCABULARY) for _ in range(12)]
    made: list[Prepared] = []
    for number in range(count):
        rows: list[TokenRow] = []
        for _ in range(1 + number % 2):
            rest = [chance.randrange(3, VOCABULARY) for _ in range(chance.randint(4, 20))]
            trained = [chance.random() < 0.5 for _ in rest]
            trained[-1] = True
            rows.append(TokenRow((*prefix, *rest), (*([False] * len(prefix)), *trained)))
        made.append(Prepared(f"x:{number}", [], tuple(rows), frozenset({str(number)}), False))
    return made


def by_hand(trainer: GRPOTrainer, batch: list[Prepared]) -> tuple[float, list[Tensor]]:
    """Loss and gradient with transformers' and PEFT's own code, a row at a time."""
    model: Any = trainer._policy.model
    parameters = list(trainer._optimizer.parameters.values())
    with untouched(model):
        losses: list[Tensor] = []
        for example in batch:
            for row in example.rows:
                tokens = torch.tensor(row.token_ids)
                labels = torch.where(torch.tensor(row.trained), tokens, -100)
                logits = model(tokens[None], use_cache=False).logits[0]
                losses.append(
                    torch.nn.functional.cross_entropy(logits[:-1], labels[1:], reduction="sum")
                )
        tokens_trained = sum(example.trained_tokens for example in batch)
        loss = torch.stack(losses).sum() / tokens_trained
        gradient = torch.autograd.grad(loss, parameters)
    return loss.item(), list(gradient)


def caught_gradient(
    trainer: GRPOTrainer, batch: list[Prepared], config: StepConfig
) -> tuple[float, list[Tensor]]:
    """Loss and gradient of `fit`; the weights stay as they are."""
    optimizer, caught = trainer._optimizer, list[Tensor]()

    def catch(config: StepConfig) -> float:
        caught.extend(p.grad.clone() for p in optimizer.parameters.values() if p.grad is not None)
        optimizer.clear()
        return 0.0

    original, optimizer.update = optimizer.update, catch
    try:
        metrics = trainer.fit(to_batch(batch), config)
    finally:
        optimizer.update = original
    return metrics.loss, caught


def make_trainer(architecture: str, **lora: Any) -> GRPOTrainer:
    trainer = GRPOTrainer(_model(architecture), lora=LoraConfig(rank=4, **lora))
    with torch.no_grad():  # B starts at 0, which would leave A without a gradient
        for number, parameter in enumerate(trainer._optimizer.parameters.values()):
            torch.manual_seed(number)
            parameter.normal_(std=0.1)
    return trainer


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gpt2", "mistral", "moe"])
@pytest.mark.parametrize("max_tokens", [None, 40])
def test_loss_and_gradient_by_hand(architecture: str, max_tokens: int | None) -> None:
    trainer, batch = make_trainer(architecture), examples(5)
    config = step_config(SftConfig(max_grad_norm=1e9, max_tokens_per_pass=max_tokens), 10)
    loss, gradient = caught_gradient(trainer, batch, config)
    expected_loss, expected = by_hand(trainer, batch)
    assert loss == pytest.approx(expected_loss, rel=TOLERANCE)
    assert norm(a - b for a, b in zip(gradient, expected, strict=True)) < TOLERANCE * norm(expected)


def test_validation_loss_is_the_same_formula_and_trains_nothing() -> None:
    trainer, batch = make_trainer("llama"), examples(5)
    before = [p.detach().clone() for p in trainer._optimizer.parameters.values()]
    measured = trainer.cross_entropy(to_batch(batch), step_config(SftConfig(), 10))
    expected, _ = by_hand(trainer, batch)
    assert measured == pytest.approx(expected, rel=TOLERANCE)
    after = trainer._optimizer.parameters.values()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_shared_prefix_is_computed_once() -> None:
    trainer, batch = make_trainer("llama"), examples(6)
    metrics = trainer.fit(to_batch(batch), step_config(SftConfig(), 10))
    rows = [row for example in batch for row in example.rows]
    assert metrics.tokens_trained == sum(sum(row.trained) for row in rows)
    # All but each row's last token is read; the twelve that they begin with once.
    distinct = {row.token_ids[:end] for row in rows for end in range(1, len(row.token_ids))}
    assert metrics.tokens_computed == len(distinct)


@pytest.mark.parametrize(("count", "size", "epochs"), [(10, 4, 3), (8, 4, 2), (3, 16, 5)])
def test_each_example_comes_once_an_epoch(count: int, size: int, epochs: int) -> None:
    made = examples(count)
    config = SftConfig(batch_size=size, epochs=epochs, seed=4)
    batches = [batch_of_update(made, config, n) for n in range(total_updates(count, config))]
    per_epoch = len(batches) // epochs
    for epoch in range(epochs):
        seen = [e.where for b in batches[epoch * per_epoch : (epoch + 1) * per_epoch] for e in b]
        assert sorted(seen) == sorted(e.where for e in made)
    assert batches == [batch_of_update(made, config, n) for n in range(len(batches))]
    if count > 4:
        assert batches[:per_epoch] != batches[per_epoch : 2 * per_epoch]


def test_the_schedule_rises_and_ends_at_zero(tiny_learning: Callable[..., list[float]]) -> None:
    rates = tiny_learning(SftConfig(epochs=10, batch_size=4, warmup_share=0.2))
    assert rates[0] < rates[1]
    assert max(rates) == pytest.approx(2e-4)
    assert rates[-1] < 0.1 * max(rates)


@pytest.fixture
def tiny_learning() -> Callable[..., list[float]]:
    """The learning rates of a whole run on eight examples."""

    def learn(config: SftConfig) -> list[float]:
        trainer, made = make_trainer("llama"), examples(8)
        updates = total_updates(len(made), config)
        return [
            trainer.fit(
                to_batch(batch_of_update(made, config, update)), step_config(config, updates)
            ).learning_rate
            for update in range(updates)
        ]

    return learn
