"""Attention in which a token of a prefix tree sees its ancestors and itself, nothing else.

With the nodes in depth-first order this is, for every segment, one causal block
(the segment with itself) and one full block (all its descendants, which are
contiguous, with the segment): no mask is ever made and no masked score computed.
The blocks of a query are softmaxes over disjoint sets of keys, joined by their
log-sum-exps (as in FlashAttention-2, arXiv 2307.08691). In the backward pass each
block gets the joint output and log-sum-exp, so its probabilities are the joint ones.

On CUDA the same rule, ``key ≤ query < end of the key's subtree``, is the mask of a
FlexAttention kernel, which skips the blocks that it leaves empty.

Reached through transformers' AttentionInterface as `IMPLEMENTATION`; the tree travels
as the keyword argument ``prefix_tree`` of the model's forward.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from art_core.errors import TrainingError
from art_core.grpo import attention_blocks
from art_core.grpo.tree import Segment

IMPLEMENTATION = "art_tree"


@dataclass(frozen=True, slots=True, eq=False)
class AttentionTree:
    """A tree as attention needs it."""

    segments: Sequence[Segment]
    block_mask: Any = None
    """FlexAttention's; None where attention goes segment by segment."""


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
    prefix_tree: AttentionTree | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **extras: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it: query [1, H, N, D], key and value [1, K, N, D].

    Returns [1, N, H, D].

    Raises:
        TrainingError: the layer asks for something that this attention doesn't do.
    """
    unmet = [name for name in ("softcap", "s_aux") if extras.get(name) is not None]
    unmet += ["dropout"] * (dropout > 0) + ["a mask"] * (attention_mask is not None)
    unmet += ["no tree"] * (prefix_tree is None)
    unmet += ["values of another width"] * (key.shape[-1] != value.shape[-1])
    if unmet or prefix_tree is None:
        raise TrainingError(f"{type(module).__name__} asks tree attention for {', '.join(unmet)}")
    return attend(query[0], key[0], value[0], prefix_tree, scaling).unsqueeze(0), None


def attend(
    query: Tensor, key: Tensor, value: Tensor, tree: AttentionTree, scale: float | None
) -> Tensor:
    """query [H, N, D], key and value [K, N, D] (H a multiple of K) to [N, H, D]."""
    if tree.block_mask is not None:
        return attention_blocks.flex(query, key, value, tree.block_mask, scale)
    return _SegmentAttention.apply(query, key, value, tree.segments, scale)


class _SegmentAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        segments: Sequence[Segment],
        scale: float | None,
    ) -> Tensor:
        block = attention_blocks.forward_for(query.device)
        heads, nodes, width = query.shape
        q = query.view(len(key), -1, nodes, width)
        output = torch.empty(nodes, heads, width, dtype=q.dtype, device=q.device)
        lse_dtype = torch.promote_types(q.dtype, torch.float32)
        lse = torch.empty(nodes, heads, 1, dtype=lse_dtype, device=q.device)
        joint, joint_lse = _grouped_output(output, len(key)), _grouped_output(lse, len(key))
        for start, end, _ in segments:
            own = slice(start, end)
            part, part_lse = block(q[:, :, own], key[:, own], value[:, own], True, scale)
            joint[:, :, own], joint_lse[:, :, own] = part, part_lse.unsqueeze(-1)
        for start, end, subtree_end in segments:
            if subtree_end > end:
                own, below = slice(start, end), slice(end, subtree_end)
                part, part_lse = block(q[:, :, below], key[:, own], value[:, own], False, scale)
                _join(joint[:, :, below], joint_lse[:, :, below], part, part_lse.unsqueeze(-1))
        ctx.save_for_backward(query, key, value, output, lse)
        ctx.segments, ctx.scale = segments, scale
        return output

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, lse = ctx.saved_tensors
        block_backward = attention_blocks.backward_for(query.device, query.dtype)
        q = query.view(len(key), -1, *query.shape[1:])
        out, grad_out, joint_lse = (
            _grouped_output(tensor, len(key)) for tensor in (output, grad_outputs[0], lse)
        )
        grad_query, grad_key, grad_value = (torch.empty_like(x) for x in (query, key, value))
        grad_q = grad_query.view(q.shape)

        def block(rows: slice, own: slice, causal: bool) -> tuple[Tensor, Tensor, Tensor]:
            return block_backward(
                grad_out[:, :, rows], q[:, :, rows], key[:, own], value[:, own],
                out[:, :, rows], joint_lse[:, :, rows].squeeze(-1), causal, ctx.scale,
            )  # fmt: skip

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


def _grouped_output(output: Tensor, kv_heads: int) -> Tensor:
    """View [N, H, D] as [K, H // K, N, D]."""
    nodes, heads, width = output.shape
    return output.view(nodes, kv_heads, heads // kv_heads, width).permute(1, 2, 0, 3)
