"""The step's gradient is that of the plain model on one row per history."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from statistics import fmean, stdev
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import PreTrainedModel

from art_core.config import LoraConfig, StepConfig
from art_core.grpo import GRPOTrainer
from art_core.trajectories import History, TrajectoryGroup

Make = Callable[..., Any]
TOLERANCE = 1e-5


@contextmanager
def untouched(model: nn.Module, attention: str = "eager") -> Generator[None]:
    """Inside, the model runs transformers' and PEFT's own code, with ``attention``."""
    lean = {m: m.forward for m in model.modules() if "forward" in vars(m)}
    ours = model.config._attn_implementation  # type: ignore[union-attr]
    for module in lean:
        del module.forward
    model.set_attn_implementation(attention)  # type: ignore[operator]
    try:
        yield
    finally:
        for module, forward in lean.items():
            module.forward = forward
        model.set_attn_implementation(ours)  # type: ignore[operator]


def row_logprobs(model: Any, history: History) -> Tensor:
    """Log-probabilities of the trained tokens, by the plain model on the one row."""
    tokens = torch.tensor(history.token_ids)
    table = torch.log_softmax(model(tokens[None], use_cache=False).logits[0], -1)
    trained = torch.tensor(history.loss_mask).nonzero()[:, 0]
    return table[trained - 1, tokens[trained]]


def plain_loss(model: Any, groups: Sequence[TrajectoryGroup], *, absolute: bool) -> Tensor:
    """CISPO with group-normalised advantages and token mean, on policy, written out.

    ``absolute`` takes the advantages' signs away, so that no terms cancel.
    """
    terms: list[Tensor] = []
    for group in groups:
        rewards = [t.reward for t in group if t.reward is not None]
        if len(set(rewards)) == 1:
            continue
        for trajectory in group:
            assert trajectory.reward is not None
            advantage = (trajectory.reward - fmean(rewards)) / (stdev(rewards) + 1e-4)
            advantage = abs(advantage) if absolute else advantage
            terms += [-advantage * row_logprobs(model, h) for h in trajectory.histories]
    joined = torch.cat(terms)
    return joined.sum() / len(joined)


def norm(tensors: Iterable[Tensor]) -> float:
    return sum(float(tensor.double().square().sum()) for tensor in tensors) ** 0.5


def relative_error(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    return norm(a - b for a, b in zip(ours, theirs, strict=True)) / norm(theirs)


def step_gradient(trainer: GRPOTrainer, groups: Sequence[TrajectoryGroup]) -> list[Tensor]:
    """The gradient that a step hands to the optimizer; the weights stay as they are."""
    caught: list[Tensor] = []
    optimizer = trainer._optimizer

    def catch(config: StepConfig) -> float:
        caught.extend(p.grad.clone() for p in optimizer.parameters.values() if p.grad is not None)
        optimizer.clear()
        return 0.0

    original, optimizer.update = optimizer.update, catch
    try:
        trainer.step(groups)
    finally:
        optimizer.update = original
    return caught


def plain_gradient(
    trainer: GRPOTrainer,
    groups: Sequence[TrajectoryGroup],
    *,
    absolute: bool = False,
    attention: str = "eager",
) -> list[Tensor]:
    model = trainer._policy.model
    with untouched(model, attention):
        loss = plain_loss(model, groups, absolute=absolute)
        return list(torch.autograd.grad(loss, list(trainer._optimizer.parameters.values())))


def new_trainer(model: PreTrainedModel, **config: Any) -> GRPOTrainer:
    """With an adapter that isn't zero, or it would have no gradient on A."""
    settings = StepConfig(correction="none", max_grad_norm=1e9, **config)
    trainer = GRPOTrainer(model, lora=LoraConfig(rank=4), config=settings)
    generator = torch.Generator().manual_seed(1)
    for parameter in trainer._optimizer.parameters.values():
        parameter.data.normal_(std=0.1, generator=generator)
    return trainer


def agents(history: Make, group: Make) -> list[TrajectoryGroup]:
    """Two groups: turns, a duplicate, a history that begins another, a sub-agent, a flat group."""
    prompt = [7, 3, 9, 4, 11, 60]
    turns = [*prompt, 1, 2, 3, 50, 51, 1, 2]
    other = [*prompt, 1, 2, 8, 50, 52, 9]
    first = group(
        (1.0, [history(turns, [6, 7, 8, 11, 12])]),
        (0.0, [history(turns, [6, 7, 8, 11, 12])]),
        (0.0, [history(turns[:9], [6, 7, 8]), history(other, [9, 11])]),
        (0.5, [history(other, [6, 7, 8, 11]), history([5, 5, 6, 30], [2, 3])]),
    )
    second = group((1.0, [history([1, 2, 3, 4], [1, 3])]), (0.0, [history([1, 2, 9, 9], [2])]))
    flat = group((1.0, [history([1, 2], [1])]), (1.0, [history([1, 3], [1])]))
    return [first, second, flat]


@pytest.mark.filterwarnings("ignore:.*fast path is not available")
@pytest.mark.parametrize("max_tokens", [None, 12])
@pytest.mark.parametrize(
    ("architecture", "trees"),
    [
        ("llama", True),
        ("qwen3", True),
        ("gemma", True),
        ("gemma2", False),
        ("gemma3", True),
        ("mistral", True),
        ("gpt2", True),
        ("moe", True),
        ("linear", False),
    ],
)
def test_architectures(
    architecture: str,
    trees: bool,
    max_tokens: int | None,
    tiny_model: Make,
    history: Make,
    group: Make,
) -> None:
    trainer = new_trainer(tiny_model(architecture), max_tokens_per_pass=max_tokens)
    assert trainer._policy.trees == trees
    groups = agents(history, group)
    error = relative_error(step_gradient(trainer, groups), plain_gradient(trainer, groups))
    assert error <= TOLERANCE


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradient_checkpointing_changes_nothing(
    checkpointing: bool, tiny_model: Make, history: Make, group: Make
) -> None:
    trainer = new_trainer(tiny_model("llama"), gradient_checkpointing=checkpointing)
    groups = agents(history, group)
    error = relative_error(step_gradient(trainer, groups), plain_gradient(trainer, groups))
    assert error <= TOLERANCE


def test_full_fine_tuning(tiny_model: Make, history: Make, group: Make) -> None:
    config = StepConfig(correction="none", max_grad_norm=1e9)
    trainer = GRPOTrainer(tiny_model("llama"), lora=None, config=config)
    groups = agents(history, group)
    error = relative_error(step_gradient(trainer, groups), plain_gradient(trainer, groups))
    assert error <= TOLERANCE


@st.composite
def branching_rollouts(draw: st.DrawFn) -> list[tuple[float, list[tuple[list[int], list[int]]]]]:
    """(reward, [(tokens, trained positions)]): branches at every depth, duplicates, prefixes."""
    token = st.integers(0, 3)
    known: list[list[int]] = [draw(st.lists(token, min_size=2, max_size=5))]
    rollouts: list[tuple[float, list[tuple[list[int], list[int]]]]] = []
    for index in range(draw(st.integers(2, 4))):
        histories: list[tuple[list[int], list[int]]] = []
        for _ in range(draw(st.integers(1, 2))):
            start = draw(st.sampled_from(known))
            kept = draw(st.integers(1, len(start)))
            tokens = start[:kept] + draw(st.lists(token, min_size=1, max_size=6))
            known.append(tokens)
            positions = st.integers(1, len(tokens) - 1)
            trained = draw(st.lists(positions, min_size=1, max_size=6, unique=True))
            histories.append((tokens, trained))
        rollouts.append((float(index % 2), histories))
    return rollouts


@pytest.fixture(scope="module")
def shared_trainer(tiny_model: Make) -> GRPOTrainer:
    return new_trainer(tiny_model("llama"))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rollouts=branching_rollouts(), max_tokens=st.sampled_from([None, 4, 9]))
def test_any_tree(
    rollouts: list[tuple[float, list[tuple[list[int], list[int]]]]],
    max_tokens: int | None,
    shared_trainer: GRPOTrainer,
    history: Make,
    group: Make,
) -> None:
    groups = [group(*((reward, itertools.starmap(history, rows)) for reward, rows in rollouts))]
    config = shared_trainer.config
    shared_trainer.config = config.model_copy(update={"max_tokens_per_pass": max_tokens})
    ours = step_gradient(shared_trainer, groups)
    shared_trainer.config = config
    theirs = plain_gradient(shared_trainer, groups)
    # Opposite advantages on the same tokens may cancel down to rounding: compare with what
    # the gradient would be if they didn't.
    scale = norm(plain_gradient(shared_trainer, groups, absolute=True))
    assert norm(a - b for a, b in zip(ours, theirs, strict=True)) <= TOLERANCE * scale


def norm_in_float64(module: Any, x: Tensor) -> Tensor:
    """RMSNorm as transformers has it, but for its fp32 inside."""
    return module.weight * x * (x.square().mean(-1, keepdim=True) + module.variance_epsilon).rsqrt()


@pytest.mark.long
def test_smollm2(
    smollm2_folder: Any, history: Make, group: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty layers deep, fp32 rounds both ways of computing it by more than they differ (2.5e-5,
    2.9e-5 and 1.1e-5 were measured), so ours must be as near as the rows' to float64's."""
    from transformers import AutoModelForCausalLM
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32)
    trainer = new_trainer(model.requires_grad_(False).eval())
    groups = agents(history, group)
    ours, plain = step_gradient(trainer, groups), plain_gradient(trainer, groups)
    trainer._policy.model.double()
    monkeypatch.setattr(LlamaRMSNorm, "forward", norm_in_float64)
    truth = plain_gradient(trainer, groups, attention="sdpa")  # "eager" has its softmax in fp32
    assert relative_error(ours, truth) <= 1.2 * relative_error(plain, truth)
    assert relative_error(ours, plain) <= 2 * TOLERANCE
