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
    if weight.dtype == torch.float32:
        return linear(x, _merged(layer), bias)
    y = linear(x, weight, bias)
    return y.addmm_(x @ a.to(x.dtype).T, b.to(x.dtype).T, alpha=scale)


def layer_gradients(
    grad: Tensor, x: Tensor, layer: Layer, grad_x: Tensor | None, *, wanted: bool = True
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of ``x``, ``a`` and ``b`` from that of the output, ``grad`` [N, O].

    Args:
        grad_x: [N, I]; the gradient of ``x`` is added to it in place; None: a new tensor.
        wanted: whether the gradient of ``x`` is.
    """
    (weight, _, scale), a, b = layer
    if a is None or b is None:
        return (_add_product(grad_x, grad, weight) if wanted else None), None, None
    low, up = a.to(x.dtype), b.to(x.dtype)
    inner = (grad @ up).mul_(scale)
    grad_a = (inner.T @ x).to(a.dtype)
    grad_b = ((x @ low.T).T @ grad).T.to(b.dtype).mul_(scale)
    if not wanted:
        return None, grad_a, grad_b
    if weight.dtype == torch.float32:
        return _add_product(grad_x, grad, _merged(layer)), grad_a, grad_b
    return _add_product(grad_x, grad, weight).addmm_(inner, low), grad_a, grad_b


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
            grad_x, *ab = layer_gradients(
                grad, x, layer, grad_x, wanted=ctx.needs_input_grad[0]
            )
            grad_adapters += ab
        return grad_x, None, *grad_adapters


def zip_layers(frozen: Sequence[Frozen], adapters: Sequence[Tensor | None]) -> list[Layer]:
    """Layers from their parts: ``adapters`` holds ``a`` and ``b`` of each in turn."""
    return [Layer(f, adapters[2 * i], adapters[2 * i + 1]) for i, f in enumerate(frozen)]
