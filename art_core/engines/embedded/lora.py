# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""LoRA adapters in PEFT's folder format: reading, checking, merging.

LoRA (arXiv 2106.09685): W' = W + s·B·A with s = α/r, or α/√r (rsLoRA, arXiv 2312.03732).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from art_core.errors import AdapterError

_KEY = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<side>[AB])\.weight")
_UNSUPPORTED = (
    "use_dora",
    "lora_bias",
    "modules_to_save",
    "layer_replication",
    "trainable_token_indices",
    "target_parameters",
    "use_qalora",
    "use_bdlora",
    "alora_invocation_tokens",
    "kasa_config",
    "arrow_config",
    "monteclora_config",
    "velora_config",
)
"""Fields of PEFT's LoraConfig that, when set, make it something else than W + s·B·A."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What an adapter adds to one linear layer: ``scale · b @ a``."""

    a: Tensor
    """[rank, in]"""
    b: Tensor
    """[out, rank]"""
    scale: float

    def merged(self, weight: Tensor) -> Tensor:
        """A new tensor, ``weight`` [out, in] with this added; computed in float32."""
        total = torch.addmm(weight.float(), self.b.float(), self.a.float(), alpha=self.scale)
        return total.to(weight.dtype)


def read_adapter(path: Path, linears: Mapping[str, nn.Linear]) -> dict[str, Delta]:
    """Read a PEFT LoRA folder made for a model with these linear layers.

    Args:
        path: holds ``adapter_config.json`` and ``adapter_model.safetensors``.
        linears: the base model's linear layers by module name.

    Returns:
        One `Delta` per adapted layer, by module name, on that layer's device.

    Raises:
        AdapterError: a file is missing or broken, this isn't plain LoRA, or its
            layers aren't those of the base model.
    """
    config = _read_config(path)
    sides = _read_tensors(path)
    deltas: dict[str, Delta] = {}
    for module, pair in sides.items():
        if module not in linears or pair.keys() != {"A", "B"}:
            raise AdapterError(
                f"adapter {path} has {' and '.join(sorted(pair))} of LoRA for {module!r}, "
                "which isn't a linear layer of the base model or lacks its other half",
                "Load an adapter that was trained on this base model.",
            )
        deltas[module] = _delta(path, config, module, pair, linears[module].weight)
    return deltas


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads((path / "adapter_config.json").read_text())
    except (OSError, ValueError) as error:
        raise AdapterError(
            f"can't read adapter_config.json in {path}: {error}",
            "Name a folder that PEFT's save_pretrained() has written.",
        ) from error
    if config.get("peft_type") != "LORA":
        raise AdapterError(f"{path} is a {config.get('peft_type')} adapter", "Only LoRA is served.")
    used = [name for name in _UNSUPPORTED if config.get(name)]
    if config.get("bias", "none") != "none":
        used.append("bias")
    if used:
        raise AdapterError(
            f"adapter {path} uses {', '.join(used)}", "Only plain LoRA on linear layers is served."
        )
    return config


def _read_tensors(path: Path) -> dict[str, dict[str, Tensor]]:
    try:
        tensors = load_file(path / "adapter_model.safetensors")
    except (OSError, SafetensorError) as error:
        raise AdapterError(f"can't read adapter_model.safetensors in {path}: {error}") from error
    sides: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        match = _KEY.fullmatch(key)
        if match is None:
            raise AdapterError(
                f"adapter {path} holds {key!r}", "Only plain LoRA on linear layers is served."
            )
        if not torch.isfinite(tensor).all():
            raise AdapterError(f"adapter {path} has NaN or infinity in {key!r}")
        sides.setdefault(match["module"], {})[match["side"]] = tensor
    if not sides:
        raise AdapterError(f"adapter {path} is empty")
    return sides


def _delta(
    path: Path, config: dict[str, Any], module: str, pair: dict[str, Tensor], weight: Tensor
) -> Delta:
    a, b = pair["A"], pair["B"]
    rank = a.shape[0]
    if a.shape != (rank, weight.shape[1]) or b.shape != (weight.shape[0], rank):
        raise AdapterError(
            f"adapter {path} has A {tuple(a.shape)} and B {tuple(b.shape)} for {module!r}, "
            f"whose weight is {tuple(weight.shape)}",
            "Load an adapter that was trained on this base model.",
        )
    alpha = float(_by_pattern(config.get("alpha_pattern") or {}, module, config["lora_alpha"]))
    scale = alpha / rank**0.5 if config.get("use_rslora") else alpha / rank
    return Delta(a.to(weight.device), b.to(weight.device), scale)


def _by_pattern(patterns: Mapping[str, Any], module: str, default: Any) -> Any:
    """PEFT's rule for ``alpha_pattern``: the first regex that matches the end of the name."""
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return default
