# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Linear layers of a served model: packed for the CPU, merged with LoRA, or beside it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from art_core.engines.embedded.lora import Delta

_PACKED_FOR = 32
"""Batch rows that oneDNN lays packed weights out for; it takes any number."""


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `PackedLinear` runs here: oneDNN, which CPU builds of torch have."""
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype == torch.float32


class PackedLinear(nn.Module):
    """A linear layer whose weight oneDNN has rearranged for its own kernels.

    With the few rows of a decoding step a quarter to twice faster than
    `nn.Linear`; the weight can't be read back.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, _PACKED_FOR)
        self._bias = bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")


class LoraLinear(nn.Module):
    """A linear layer with an adapter that isn't merged: two more products a call."""

    def __init__(self, base: nn.Module, delta: Delta, dtype: torch.dtype) -> None:
        super().__init__()
        self._base = base
        self._a = delta.a.to(dtype)
        self._b = (delta.b * delta.scale).to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        lowered = nn.functional.linear(x, self._a)
        return self._base(x) + nn.functional.linear(lowered, self._b)


def make_linear(weight: Tensor, bias: Tensor | None) -> nn.Module:
    """The quickest layer here for this weight [out, in]."""
    if can_pack(weight.device, weight.dtype):
        return PackedLinear(weight, bias)
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer
