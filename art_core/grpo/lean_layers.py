"""Transformer parts that pass over memory as few times as they can.

The element-wise work of a step is bound by memory, so each part here is one autograd
function that keeps only what it can't cheaply make again. They compute what the
modules of transformers compute; `lean` puts them there, and only where that is so.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from art_core.grpo.lora_linear import (
    Frozen,
    Layer,
    adapter_gradients,
    apply_layer,
    input_gradient,
    zip_layers,
)


class RMSNorm(torch.autograd.Function):
    """``y = x / sqrt(mean(x²) + eps) · w`` over the last of x's dimensions; w is frozen."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        scale = (norm.square_().div_(x.shape[-1]).add_(eps)).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        y = torch.empty_like(x)
        return torch.mul(x, scale, out=y).mul_(weight)  # in fp32, rounded to x's dtype

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        x, weight, scale = ctx.saved_tensors
        grad_x = grads[0] * weight
        along = torch.linalg.vecdot(grad_x, x).unsqueeze(-1).float()
        along.mul_(scale**3).div_(-x.shape[-1])
        grad_x.mul_(scale).addcmul_(x, along.to(x.dtype))
        return grad_x, None, None


class Rotary(torch.autograd.Function):
    """Rotary position embedding of x [N, H, D] by cos and sin [N, 1, D / 2] (arXiv 2104.09864):
    component i is rotated with component i + D / 2."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotated(grads[0], cos, -sin), None, None


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    y_first, y_second = y.chunk(2, dim=-1)
    torch.mul(first, cos, out=y_first)
    y_first.addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=y_second)
    y_second.addcmul_(first, sin)
    return y


def swiglu(x: Tensor, gate: Layer, up: Layer, down: Layer) -> Tensor:
    """``down(silu(gate(x)) · up(x))``, [N, I] to [N, I] (arXiv 2002.05202)."""
    layers = (gate, up, down)
    adapters = [tensor for layer in layers for tensor in (layer.a, layer.b)]
    return _SwiGLU.apply(x, [layer.frozen for layer in layers], *adapters)


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, frozen: Sequence[Frozen], *adapters: Tensor | None) -> Tensor:
        gate, up, down = zip_layers(frozen, adapters)
        gated, raised = apply_layer(x, gate), apply_layer(x, up)
        ctx.frozen = frozen
        ctx.save_for_backward(x, gated, raised, *adapters)
        return apply_layer(silu(gated).mul_(raised), down)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, gated, raised, *adapters = ctx.saved_tensors
        gate, up, down = zip_layers(ctx.frozen, adapters)
        activated = silu(gated)
        down_ab = adapter_gradients(grads[0], activated * raised, down)
        grad_hidden = input_gradient(grads[0], down)
        grad_raised = activated.mul_(grad_hidden)
        grad_gated = torch.ops.aten.silu_backward(grad_hidden.mul_(raised), gated)
        gate_ab = adapter_gradients(grad_gated, x, gate)
        up_ab = adapter_gradients(grad_raised, x, up)
        grad_x: Tensor | None = None
        if ctx.needs_input_grad[0]:
            grad_x = input_gradient(grad_raised, up, input_gradient(grad_gated, gate))
        return grad_x, None, *gate_ab, *up_ab, *down_ab
