"""Attention between a block of queries and a block of keys, per device.

All take q [B, H, n, D], k and v [B, H, m, D]; causal means that n = m and query i sees
keys 0 … i. Forward gives the output, [B, H, n, D], and the log-sum-exp of the scores,
[B, H, n] fp32; backward takes both, of whatever larger softmax the block is a part of.
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


def forward_for(device: torch.device) -> BlockForward:
    return _cpu_forward if device.type == "cpu" else portable_forward


def backward_for(device: torch.device) -> BlockBackward:
    return _cpu_backward if device.type == "cpu" else portable_backward


def _cpu_forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    return _aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale)


def _cpu_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor,
    causal: bool, scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    backward = _aten._scaled_dot_product_flash_attention_for_cpu_backward
    return backward(grad, q, k, v, output, lse, 0.0, causal, scale=scale)


def portable_forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """In plain tensor operations, for devices without a kernel; the scores are materialised."""
    scores = _scores(q, k, causal, scale)
    lse = torch.logsumexp(scores, -1)
    return (scores - lse.unsqueeze(-1)).exp().to(v.dtype) @ v, lse


def portable_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor,
    causal: bool, scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Backward of `portable_forward` (FlashAttention-2's formulas, arXiv 2307.08691, §3.1)."""
    weights = (_scores(q, k, causal, scale) - lse.unsqueeze(-1)).exp()
    grad_v = weights.to(v.dtype).transpose(-1, -2) @ grad
    along = (grad.to(lse.dtype) * output.to(lse.dtype)).sum(-1, keepdim=True)
    slope = weights * ((grad @ v.transpose(-1, -2)).to(lse.dtype) - along)
    slope = slope.mul_(_scale(q, scale)).to(q.dtype)
    return slope @ k, slope.transpose(-1, -2) @ q, grad_v


def _scale(q: Tensor, scale: float | None) -> float:
    return q.shape[-1] ** -0.5 if scale is None else scale


def _scores(q: Tensor, k: Tensor, causal: bool, scale: float | None) -> Tensor:
    scores = (q @ k.transpose(-1, -2)).to(torch.promote_types(q.dtype, torch.float32))
    scores.mul_(_scale(q, scale))
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return scores


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
