"""Frozen linear layers with a LoRA adapter, in few passes over memory.

``y = x Wᵀ + s (x Aᵀ) Bᵀ`` with frozen ``W`` [O, I], trained ``A`` [r, I] and ``B`` [O, r].

In fp32 the product is taken with the merged ``M = W + s B A``, made on the fly: one
matrix product each way, ``y = x Mᵀ`` and ``dx = dy M``. In bf16 a merge would round
the adapter away, so its two thin products are added to the frozen layer's result
in place. The gradients ``dA = s (dy B)ᵀ x`` and ``dB = s dyᵀ (x Aᵀ)`` are thin products
too; the frozen weight's own gradient is never made.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.nn.functional import linear

_MERGED = (torch.float32, torch.float64)


class Frozen(NamedTuple):
    """A frozen layer: weight [O, I], bias [O], and the scale ``s`` of its adapter."""

    weight: Tensor
    bias: Tensor | None
    scale: float


class Layer(NamedTuple):
    frozen: Frozen
    a: Tensor | None
    """[r, I] fp32; None: no adapter is active."""
    b: Tensor | None
    """[O, r] fp32"""


def as_layer(module: nn.Module) -> Layer | None:
    """The layer as data; None if it's anything but a frozen linear layer with plain LoRA."""
    adapter: tuple[float, Tensor, Tensor] | None = None
    if isinstance(module, LoraLinear):
        active = [name for name in module.active_adapters if name in module.lora_A]
        if module.merged or len(active) > 1:
            return None
        if active and not module.disable_adapters:
            name = active[0]
            a: Any = module.lora_A[name]
            b: Any = module.lora_B[name]
            plain = name not in module.lora_variant and b.bias is None
            if not plain or not isinstance(module.lora_dropout[name], nn.Identity):
                return None
            adapter = (module.scaling[name], a.weight, b.weight)
        module = module.base_layer  # type: ignore[assignment]
    if type(module) is not nn.Linear or module.weight.requires_grad:
        return None
    scale, a, b = adapter or (0.0, None, None)
    return Layer(Frozen(module.weight.detach(), module.bias, scale), a, b)


def apply_layer(x: Tensor, layer: Layer) -> Tensor:
    """[N, I] to [N, O]."""
    (weight, bias, scale), a, b = layer
    if a is None or b is None:
        return linear(x, weight, bias)
    if weight.dtype in _MERGED:
        return linear(x, _merged(layer), bias)
    y = linear(x, weight, bias)
    return y.addmm_(x @ a.to(x.dtype).T, b.to(x.dtype).T, alpha=scale)


def adapter_gradients(grad: Tensor, x: Tensor, layer: Layer) -> list[Tensor | None]:
    """Gradients of ``a`` and ``b`` from that of the output, [N, O], and the input, [N, I]."""
    if layer.a is None or layer.b is None:
        return [None, None]
    inner = (grad @ layer.b.to(x.dtype)).mul_(layer.frozen.scale)
    grad_a = (inner.T @ x).to(layer.a.dtype)
    grad_b = ((x @ layer.a.to(x.dtype).T).T @ grad).T.to(layer.b.dtype)
    return [grad_a, grad_b.mul_(layer.frozen.scale)]


def input_gradient(grad: Tensor, layer: Layer, total: Tensor | None = None) -> Tensor:
    """Gradient of the input, [N, I], from that of the output; added to ``total`` in place."""
    (weight, _, scale), a, b = layer
    if a is None or b is None:
        return _add_product(total, grad, weight)
    if weight.dtype in _MERGED:
        return _add_product(total, grad, _merged(layer))
    inner = (grad @ b.to(grad.dtype)).mul_(scale)
    return _add_product(total, grad, weight).addmm_(inner, a.to(grad.dtype))


def _merged(layer: Layer) -> Tensor:
    (weight, _, scale), a, b = layer
    return torch.addmm(weight, b, a, alpha=scale)  # type: ignore[arg-type]


def _add_product(total: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    return left @ right if total is None else total.addmm_(left, right)


def linears(x: Tensor, layers: Sequence[Layer]) -> tuple[Tensor, ...]:
    """Several layers on one input, [N, I]; the input's gradients are summed in place."""
    adapters = [tensor for layer in layers for tensor in (layer.a, layer.b)]
    return _Linears.apply(x, [layer.frozen for layer in layers], *adapters)


class _Linears(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, frozen: Sequence[Frozen], *adapters: Tensor | None
    ) -> tuple[Tensor, ...]:
        ctx.frozen = frozen
        ctx.save_for_backward(x, *adapters)
        return tuple(apply_layer(x, layer) for layer in zip_layers(frozen, adapters))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, *adapters = ctx.saved_tensors
        grad_x: Tensor | None = None
        grad_adapters: list[Tensor | None] = []
        for grad, layer in zip(grads, zip_layers(ctx.frozen, adapters), strict=True):
            grad_adapters += adapter_gradients(grad, x, layer)
            if ctx.needs_input_grad[0]:
                grad_x = input_gradient(grad, layer, grad_x)
        return grad_x, None, *grad_adapters


def zip_layers(frozen: Sequence[Frozen], adapters: Sequence[Tensor | None]) -> list[Layer]:
    """Layers from their parts: ``adapters`` holds ``a`` and ``b`` of each in turn."""
    return [Layer(f, adapters[2 * i], adapters[2 * i + 1]) for i, f in enumerate(frozen)]
