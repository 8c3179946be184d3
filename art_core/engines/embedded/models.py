# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Module trees for the base model and for adapters, within a budget of weight copies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from art_core.engines.embedded.linears import LoraLinear, can_pack, make_linear
from art_core.engines.embedded.lora import Delta, read_adapter
from art_core.engines.embedded.model import Architecture, ServedModel, inspect
from art_core.weights.loading import BaseWeights


class ModelFactory:
    """Builds `ServedModel`s over one base model.

    Safe to call from any thread: what is shared is only read after construction.
    """

    def __init__(self, weights: BaseWeights) -> None:
        self._weights = weights
        probe = weights.new_model()
        self.linears: Mapping[str, nn.Linear] = {
            name: module for name, module in probe.named_modules() if type(module) is nn.Linear
        }
        self.architecture: Architecture = inspect(probe, weights.device, weights.dtype)
        self._shared = self._pack_shared()

    def _pack_shared(self) -> dict[str, nn.Module]:
        """The output head, packed once for all: the largest layer, and seldom adapted."""
        tree = self._weights.new_model()
        head = tree.get_output_embeddings()
        if type(head) is not nn.Linear or not can_pack(self._weights.device, self._weights.dtype):
            return {}
        name = next(name for name, module in tree.named_modules() if module is head)
        return {name: make_linear(head.weight, head.bias)}

    def read(self, path: Path) -> dict[str, Delta]:
        """An adapter's deltas; raises AdapterError, see `read_adapter`."""
        return read_adapter(path, self.linears)

    def copy_bytes(self, deltas: Mapping[str, Delta]) -> int:
        """Memory that a merged copy for these deltas takes."""
        return sum(self.linears[name].weight.nbytes for name in deltas)

    @property
    def base_copy_bytes(self) -> int:
        """Memory that a packed copy of the base takes; 0 where packing isn't possible."""
        if not can_pack(self._weights.device, self._weights.dtype):
            return 0
        return sum(layer.weight.nbytes for _, layer in self._unshared())

    def base(self, *, copy: bool) -> ServedModel:
        """The base model; with ``copy``, packed."""
        layers = {n: make_linear(m.weight, m.bias) for n, m in self._unshared()} if copy else {}
        return self._serve(layers)

    def merged(self, deltas: Mapping[str, Delta]) -> ServedModel:
        """With copies of the adapted weights, packed where possible: as quick as the base."""
        with torch.inference_mode():
            layers = {
                name: make_linear(delta.merged(self.linears[name].weight), self.linears[name].bias)
                for name, delta in deltas.items()
            }
        return self._serve(layers)

    def unmerged(self, deltas: Mapping[str, Delta]) -> ServedModel:
        """Beside the base's weights: no copy, slower."""
        dtype = self._weights.dtype
        layers = {
            name: LoraLinear(self.linears[name], delta, dtype) for name, delta in deltas.items()
        }
        return self._serve(layers)

    def _unshared(self) -> list[tuple[str, nn.Linear]]:
        return [(name, m) for name, m in self.linears.items() if name not in self._shared]

    def _serve(self, layers: Mapping[str, nn.Module]) -> ServedModel:
        tree = self._weights.new_model()
        for name, layer in {**self._shared, **layers}.items():
            parent, _, attribute = name.rpartition(".")
            setattr(tree.get_submodule(parent), attribute, layer)
        return ServedModel(tree, self.architecture)
