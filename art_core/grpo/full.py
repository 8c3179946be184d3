"""Full fine-tuning: every weight of a small model is trained, in fp32."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from art_core.errors import ConfigError, RunDamagedError

WEIGHTS_FILE = "model.safetensors"


class FullWeights:
    """The weights of ``model``, copied, so that whoever shares the base's keeps it."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        copies = {p: nn.Parameter(p.detach().float().clone()) for p in model.parameters()}
        for module in model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                setattr(module, name, copies[parameter])

    def parameters(self) -> dict[str, nn.Parameter]:
        """By name; tied weights once."""
        return dict(self._model.named_parameters())

    def save(self, folder: Path) -> None:
        """Write a folder that `AutoModelForCausalLM.from_pretrained` reads."""
        tensors = {name: p.detach().cpu().contiguous() for name, p in self.parameters().items()}
        save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})
        config: Any = self._model.config
        config.save_pretrained(str(folder))

    def load(self, folder: Path) -> None:
        """Read the weights back.

        Raises:
            RunDamagedError: they aren't this model's.
        """
        path = folder / WEIGHTS_FILE
        tensors, parameters = load_file(path), self.parameters()
        if {n: t.shape for n, t in tensors.items()} != {n: p.shape for n, p in parameters.items()}:
            raise RunDamagedError(
                f"{path} holds the weights of another model", "Resume with the same base model."
            )
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(tensors[name])

    @contextmanager
    def reference(self, adapter: Path | None) -> Generator[None]:
        """Not with full fine-tuning: the base's weights are gone.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "kl_coefficient is above 0 and every weight is trained",
            "A KL term needs an adapter that can be switched off: give a LoraConfig.",
        )
        yield
