"""AdamW (arXiv 1711.05101) with a learning-rate schedule; its state is tensors and numbers."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from art_core.config import StepConfig
from art_core.errors import RunDamagedError

_MOMENTS = ("exp_avg", "exp_avg_sq")


def learning_rate(update: int, config: StepConfig) -> float:
    """The learning rate of the optimizer's update number ``update`` (0 is the first)."""
    if update < config.warmup_updates:
        return config.learning_rate * (update + 1) / config.warmup_updates
    if config.schedule == "constant" or config.schedule_updates is None:
        return config.learning_rate
    length = config.schedule_updates - config.warmup_updates
    done = min(1.0, (update - config.warmup_updates) / length)
    left = 1 - done if config.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return config.learning_rate * left


class Optimizer:
    """AdamW over named parameters, in fp32."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.parameters = dict(parameters)
        self.updates = 0
        """How many updates were applied."""
        self._adamw = torch.optim.AdamW(self.parameters.values(), fused=True)

    def gradient_norm(self) -> float:
        """Euclidean norm of all gradients together."""
        grads = [p.grad for p in self.parameters.values() if p.grad is not None]
        return float(nn.utils.get_total_norm(grads))

    def clip(self, max_norm: float) -> float:
        """Scale the gradients down to ``max_norm``; returns their norm before."""
        return float(nn.utils.clip_grad_norm_(self.parameters.values(), max_norm))

    def update(self, config: StepConfig) -> float:
        """Apply the gradients and drop them; returns the learning rate."""
        rate = learning_rate(self.updates, config)
        for group in self._adamw.param_groups:
            group["lr"], group["weight_decay"] = rate, config.weight_decay
        self._adamw.step()
        self.updates += 1
        self.clear()
        return rate

    def clear(self) -> None:
        """Drop the gradients."""
        self._adamw.zero_grad(set_to_none=True)

    def snapshot(self) -> Callable[[], None]:
        """Remember weights and state; the result puts them back."""
        weights = {name: p.detach().clone() for name, p in self.parameters.items()}
        moments = {name: tensor.clone() for name, tensor in self.tensors().items()}
        updates = self.updates

        def put_back() -> None:
            self.restore(moments, updates)
            with torch.no_grad():
                for name, parameter in self.parameters.items():
                    parameter.copy_(weights[name])

        return put_back

    def tensors(self) -> dict[str, Tensor]:
        """The moments, as ``<moment>.<parameter name>``; none before the first update."""
        state: Any = self._adamw.state
        return {
            f"{moment}.{name}": state[parameter][moment].detach().cpu()
            for name, parameter in self.parameters.items()
            if parameter in state
            for moment in _MOMENTS
        }

    def restore(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        """Take back what `tensors` gave after ``updates`` updates.

        Raises:
            RunDamagedError: the tensors are of other parameters.
        """
        expected = {f"{m}.{name}": p for name, p in self.parameters.items() for m in _MOMENTS}
        wrong = [n for n, p in expected.items() if n not in tensors or tensors[n].shape != p.shape]
        self._adamw.state.clear()
        self.updates = updates
        if updates == 0:
            return
        if wrong or len(tensors) != len(expected):
            raise RunDamagedError(
                f"the optimizer's state doesn't fit the trained parameters: {wrong[:3]}",
                "Resume with the same base model and LoRA settings.",
            )
        for name, parameter in self.parameters.items():
            moments = {m: tensors[f"{m}.{name}"].to(parameter.device) for m in _MOMENTS}
            self._adamw.state[parameter] = {"step": torch.tensor(float(updates)), **moments}
