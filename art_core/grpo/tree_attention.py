"""Attention in which a token of a prefix tree sees its ancestors and itself, nothing else.

With the nodes in depth-first order this is, for every segment, one causal block
(the segment with itself) and one full block (all its descendants, which are
contiguous, with the segment): no mask is ever made and no masked score computed.
The blocks of a query are softmaxes over disjoint sets of keys, joined by their
log-sum-exps (as in FlashAttention-2, arXiv 2307.08691). In the backward pass each
block gets the joint output and log-sum-exp, so its probabilities are the joint ones.

Reached through transformers' AttentionInterface as `IMPLEMENTATION`; the tree's
segments travel as the keyword argument ``tree_segments`` of the model's forward.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from art_core.errors import TrainingError
from art_core.grpo.tree import Segment

IMPLEMENTATION = "art_tree"

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def register() -> None:
    """Make `IMPLEMENTATION` known to transformers; doing it again changes nothing."""
    from transformers import AttentionInterface

    AttentionInterface.register(IMPLEMENTATION, attention_interface)


def attention_interface(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    tree_segments: Sequence[Segment],
    scaling: float | None = None,
    dropout: float = 0.0,
    **extras: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it: query [1, H, N, D], key and value [1, K, N, D].

    Returns [1, N, H, D].

    Raises:
        TrainingError: the layer asks for something this attention doesn't do.
    """
    unknown = [name for name in ("softcap", "s_aux") if extras.get(name) is not None]
    if unknown or dropout or attention_mask is not None or query.shape[0] != 1:
        raise TrainingError(
            f"{type(module).__name__} asks tree attention for {unknown or 'a mask'}"
        )
    output = TreeAttention.apply(query[0], key[0], value[0], tree_segments, scaling)
    return output.unsqueeze(0), None


class TreeAttention(torch.autograd.Function):
    """query [H, N, D], key and value [K, N, D] (H a multiple of K) to [N, H, D]."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        segments: Sequence[Segment],
        scale: float | None,
    ) -> Tensor:
        heads, nodes, _ = query.shape
        q, k, v = _grouped(query, key, value)
        output = torch.empty(nodes, heads, v.shape[-1], dtype=q.dtype, device=q.device)
        joint = _grouped_output(output, k.shape[0])
        lse = torch.empty(nodes, heads, dtype=torch.float32, device=q.device)
        joint_lse = _grouped_output(lse.unsqueeze(-1), k.shape[0])
        for start, end, _ in segments:
            own = slice(start, end)
            part, part_lse = _flash(
                q[:, :, own], k[:, :, own], v[:, :, own], 0.0, True, scale=scale
            )
            joint[:, :, own] = part
            joint_lse[:, :, own] = part_lse.unsqueeze(-1)
        for start, end, subtree_end in segments:
            if subtree_end > end:
                own, below = slice(start, end), slice(end, subtree_end)
                part, part_lse = _flash(
                    q[:, :, below], k[:, :, own], v[:, :, own], 0.0, False, scale=scale
                )
                _join(joint[:, :, below], joint_lse[:, :, below], part, part_lse.unsqueeze(-1))
        ctx.save_for_backward(query, key, value, output, lse)
        ctx.segments, ctx.scale = segments, scale
        return output

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, lse = ctx.saved_tensors
        q, k, v = _grouped(query, key, value)
        kv_heads = k.shape[0]
        out, grad_out = (_grouped_output(tensor, kv_heads) for tensor in (output, grad_outputs[0]))
        joint_lse = _grouped_output(lse.unsqueeze(-1), kv_heads).squeeze(-1)
        grad_query, grad_key, grad_value = (torch.empty_like(x) for x in (query, key, value))
        grad_q = grad_query.view(q.shape)

        def block(rows: slice, own: slice, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
            dq, dk, dv = _flash_backward(
                grad_out[:, :, rows], q[:, :, rows], k[:, :, own], v[:, :, own],
                out[:, :, rows], joint_lse[:, :, rows], 0.0, causal, scale=ctx.scale,
            )  # fmt: skip
            return dq, dk.sum(1), dv.sum(1)

        for start, end, _ in ctx.segments:
            own = slice(start, end)
            grad_q[:, :, own], grad_key[:, own], grad_value[:, own] = block(own, own, True)
        for start, end, subtree_end in ctx.segments:
            if subtree_end > end:
                own, below = slice(start, end), slice(end, subtree_end)
                dq, dk, dv = block(below, own, False)
                grad_q[:, :, below] += dq
                grad_key[:, own] += dk
                grad_value[:, own] += dv
        return grad_query, grad_key, grad_value, None, None


def _join(output: Tensor, lse: Tensor, part: Tensor, part_lse: Tensor) -> None:
    """Join, in place, the softmax of a further block of keys: [K, G, N, D] and [K, G, N, 1]."""
    output.lerp_(part, torch.sigmoid(part_lse - lse).to(part.dtype))
    lse.copy_(torch.logaddexp(lse, part_lse))


def _grouped(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """View heads as [K, H // K, N, D], with keys and values repeated by a stride of 0."""
    kv_heads, nodes, _ = key.shape
    q = query.view(kv_heads, -1, nodes, query.shape[-1])
    groups = q.shape[1]
    return (
        q,
        key.unsqueeze(1).expand(-1, groups, -1, -1),
        value.unsqueeze(1).expand(-1, groups, -1, -1),
    )


def _grouped_output(output: Tensor, kv_heads: int) -> Tensor:
    """View [N, H, D] as [K, H // K, N, D]."""
    nodes, heads, width = output.shape
    return output.view(nodes, kv_heads, heads // kv_heads, width).permute(1, 2, 0, 3)
