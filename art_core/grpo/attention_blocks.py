"""Attention between a block of queries and a block of keys, per device.

All take q [K, G, n, D], k and v [K, m, D]: the G heads of a group share keys and values.
Causal means that n = m and query i sees keys 0 … i. Forward gives the output, [K, G, n, D],
and the log-sum-exp of the scores, [K, G, n] fp32; backward takes both, of whatever larger
softmax the block is a part of, and gives gradients in the shapes of q, k and v.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from art_core.grpo.tree import Segment

BlockForward = Callable[[Tensor, Tensor, Tensor, bool, float | None], tuple[Tensor, Tensor]]
BlockBackward = Callable[..., tuple[Tensor, Tensor, Tensor]]

_aten: Any = torch.ops.aten


ROWS = 128
"""Queries whose scores `portable_backward` holds at a time: few enough for the cache."""


def forward_for(device: torch.device) -> BlockForward:
    return _cpu_forward if device.type == "cpu" else portable_forward


def backward_for(device: torch.device, dtype: torch.dtype) -> BlockBackward:
    # In 16 bits torch's CPU kernel takes up to twice the time of the bare matrix products.
    kernel = device.type == "cpu" and dtype.itemsize > 2
    return _cpu_backward if kernel else portable_backward


def _cpu_forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    k, v = _per_head(k, q), _per_head(v, q)
    return _aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale)


def _cpu_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor,
    causal: bool, scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    k, v = _per_head(k, q), _per_head(v, q)
    backward = _aten._scaled_dot_product_flash_attention_for_cpu_backward
    grad_q, grad_k, grad_v = backward(grad, q, k, v, output, lse, 0.0, causal, scale=scale)
    return grad_q, grad_k.sum(1), grad_v.sum(1)


def _per_head(keys: Tensor, q: Tensor) -> Tensor:
    """[K, m, D] seen as [K, G, m, D]."""
    return keys.unsqueeze(1).expand(-1, q.shape[1], -1, -1)


def portable_forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """In plain tensor operations, for devices without a kernel; the scores are materialised."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = (q @ k.unsqueeze(1).mT).to(wide).mul_(_scale(q, scale))
    if causal:
        scores.masked_fill_(_later(scores.shape[-1], q.device), float("-inf"))
    lse = torch.logsumexp(scores, -1)
    return (scores - lse.unsqueeze(-1)).exp().to(v.dtype) @ v.unsqueeze(1), lse


def portable_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor,
    causal: bool, scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """In plain matrix products, `ROWS` queries at a time, against the keys that any of them
    sees (FlashAttention-2's formulas, arXiv 2307.08691, §3.1)."""
    factor, kv_heads, nodes = _scale(q, scale), k.shape[0], q.shape[2]
    along = (grad.to(lse.dtype) * output.to(lse.dtype)).sum(-1)
    grad_q = torch.empty_like(q)
    grad_k, grad_v = (torch.zeros_like(x, dtype=lse.dtype) for x in (k, v))
    for start in range(0, nodes, ROWS):
        end = min(start + ROWS, nodes)
        rows, seen = slice(start, end), slice(0, end if causal else k.shape[1])
        q_rows, grad_rows = (x[:, :, rows].reshape(kv_heads, -1, x.shape[-1]) for x in (q, grad))
        lse_rows, along_rows = (x[:, :, rows].reshape(kv_heads, -1, 1) for x in (lse, along))
        weights = (q_rows @ k[:, seen].mT).to(lse.dtype).mul_(factor).sub_(lse_rows).exp_()
        if causal:
            own = weights.view(kv_heads, -1, end - start, end)[..., rows]
            own.masked_fill_(_later(end - start, q.device), 0.0)
        grad_v[:, seen] += weights.to(v.dtype).mT @ grad_rows
        slope = (grad_rows @ v[:, seen].mT).to(lse.dtype)
        slope = slope.sub_(along_rows).mul_(weights).mul_(factor).to(q.dtype)
        grad_q[:, :, rows] = (slope @ k[:, seen]).view(kv_heads, -1, end - start, q.shape[-1])
        grad_k[:, seen] += slope.mT @ q_rows
    return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype)


def _scale(q: Tensor, scale: float | None) -> float:
    return q.shape[-1] ** -0.5 if scale is None else scale


def _later(length: int, device: torch.device) -> Tensor:
    """[length, length] true where the key comes after the query."""
    return torch.ones(length, length, dtype=torch.bool, device=device).triu_(1)


def tree_block_mask(segments: Sequence[Segment], device: torch.device) -> Any:
    """FlexAttention's block mask: a key is seen by itself and the nodes of its subtree."""
    nodes = segments[-1].end
    lengths = torch.tensor([s.end - s.start for s in segments], device=device)
    ends = torch.tensor([s.subtree_end for s in segments], device=device)
    subtree_end = ends.repeat_interleave(lengths)

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (query < subtree_end[key])

    return create_block_mask(sees, None, None, nodes, nodes, device=str(device))


@cache
def _compiled_flex() -> Any:
    return torch.compile(flex_attention)


def flex(q: Tensor, k: Tensor, v: Tensor, block_mask: Any, scale: float | None) -> Tensor:
    """q [H, N, D], k and v [K, N, D] to [N, H, D]; without compiling (off CUDA) only forward."""
    attention: Any = _compiled_flex() if q.is_cuda else flex_attention
    output = attention(
        q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0),
        block_mask=block_mask, scale=scale, enable_gqa=len(k) != len(q),
    )  # fmt: skip
    return output[0].transpose(0, 1)
