"""The whole engine learns a small task, and doesn't if any one thing about it is wrong."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from art_core.config import LoraConfig, StepConfig
from art_core.grpo import GRPOTrainer
from art_core.trajectories import TrajectoryGroup

Make = Callable[..., Any]
Mistake = Literal["none", "sign", "mask", "version"]

STEPS, GROUPS, ROLLOUTS, TURNS = 24, 2, 16, 2
GOOD = 12
"""An action is good if it is one of the first GOOD of the 97 tokens."""
OBSERVATION = [90, 91]
CONFIG = StepConfig(learning_rate=1e-2, correction="mask", correction_low=0.7, correction_high=1.4)


@dataclass(frozen=True, slots=True)
class Played:
    tokens: list[int]
    actions: list[int]
    """Positions in ``tokens``."""
    logprobs: list[float]
    reward: float


def next_logprobs(model: Any, rows: list[list[int]]) -> Tensor:
    """[R, V], by transformers' own attention."""
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        logits = model(torch.tensor(rows), use_cache=False).logits[:, -1]
    model.set_attn_implementation(implementation)
    return torch.log_softmax(logits, -1)


def play(model: PreTrainedModel, prompt: list[int], generator: torch.Generator) -> list[Played]:
    """Rollouts of two actions with an observation between, rewarded by the share of good ones."""
    rows = [list(prompt) for _ in range(ROLLOUTS)]
    actions: list[int] = []
    logprobs: list[list[float]] = [[] for _ in rows]
    for turn in range(TURNS):
        rows = [row + OBSERVATION * (turn > 0) for row in rows]
        actions.append(len(rows[0]))
        table = next_logprobs(model, rows)
        chosen = torch.multinomial(table.exp(), 1, generator=generator)[:, 0].tolist()
        for row, values, line, action in zip(rows, logprobs, table, chosen, strict=True):
            row.append(action)
            values.append(float(line[action]))
    return [
        Played([*row, 95], actions, values, sum(row[p] < GOOD for p in actions) / TURNS)
        for row, values in zip(rows, logprobs, strict=True)
    ]


def base_logprobs(base: PreTrainedModel, played: Played) -> list[float]:
    """What the untrained model would have given the actions."""
    return [
        float(next_logprobs(base, [played.tokens[:p]])[0, played.tokens[p]]) for p in played.actions
    ]


def decisive(model: PreTrainedModel) -> PreTrainedModel:
    """The same with logits twice as large: a model this narrow could hardly be sure of a token."""
    norm: Any = model.base_model.norm
    norm.weight.data.mul_(2)
    return model


def last_reward(tiny_model: Make, history: Make, group: Make, mistake: Mistake = "none") -> float:
    """Mean reward over the last three steps of a training with a mistake in it."""
    model, base = decisive(tiny_model("llama")), decisive(tiny_model("llama"))
    trainer = GRPOTrainer(model, lora=LoraConfig(rank=8, alpha=16), config=CONFIG)
    generator = torch.Generator().manual_seed(0)
    rewards: list[float] = []
    for step in range(STEPS):
        groups: list[TrajectoryGroup] = []
        for index in range(GROUPS):
            rollouts = play(model, [40 + index, 60, 70], generator)
            rewards += [played.reward for played in rollouts]
            rows: list[Any] = []
            for played in rollouts:
                trained = [p + 1 for p in played.actions] if mistake == "mask" else played.actions
                stale = mistake == "version"
                logprobs = base_logprobs(base, played) if stale else played.logprobs
                reward = -played.reward if mistake == "sign" else played.reward
                rows.append((reward, [history(played.tokens, trained, logprobs, step)]))
            groups.append(group(*rows))
        trainer.step(groups)
    tail = rewards[-3 * GROUPS * ROLLOUTS :]
    return sum(tail) / len(tail)


def test_it_learns(tiny_model: Make, history: Make, group: Make) -> None:
    assert last_reward(tiny_model, history, group) > 0.8


def test_not_with_the_advantage_turned_around(tiny_model: Make, history: Make, group: Make) -> None:
    assert last_reward(tiny_model, history, group, "sign") < 0.1


def test_not_with_the_mask_off_by_one(tiny_model: Make, history: Make, group: Make) -> None:
    assert last_reward(tiny_model, history, group, "mask") < 0.65


def test_not_with_the_logprobs_of_another_version(
    tiny_model: Make, history: Make, group: Make
) -> None:
    assert last_reward(tiny_model, history, group, "version") < 0.65
