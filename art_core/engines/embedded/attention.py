# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Attention of one flat batch of tokens to the KV of the requests they belong to.

Plain matrix products and a softmax, on any device: keys of the shared trunk and of
a request's own row are scored apart (the trunk in one product for all its
requests), put side by side and normalised together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from art_core.engines.embedded.kv import KVLayout, Seat, Slab

_QUERY_BLOCK = 128
"""Prompt rows scored at once: bounds memory, and skips keys that no row may see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How one layer scores: all but ``scale`` None in most models."""

    scale: float
    softcap: float | None = None
    """Scores become softcap · tanh(scores / softcap) (Gemma 2)."""
    window: int | None = None
    """Keys this far back or further aren't seen."""


@dataclass(slots=True, eq=False)
class DecodeGroup:
    """One new token for some requests of a slab: tokens ``start``:``stop`` of the batch."""

    slab: Slab
    start: int
    stop: int
    rows: Tensor
    """[n] slab row of each token."""
    tail_positions: Tensor
    """[n] where in its row each token goes."""
    longest: int
    """Tokens in the fullest of these rows, the new ones included."""
    all_rows: bool
    """``rows`` is 0 … len(slab.seats)-1."""
    _masks: dict[int | None, Tensor] = field(default_factory=dict[int | None, Tensor])

    def mask(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """[n, 1, 1, longest] to be added to tail scores; the same in every layer.

        Trunks need none: they are whole, and models with windows have no trunks.
        """
        if window not in self._masks:
            position = torch.arange(self.longest, device=self.rows.device)
            last = self.tail_positions[:, None]
            hidden = position > last
            if window is not None:
                hidden |= position <= last - window
            mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
            self._masks[window] = mask.masked_fill_(hidden, -math.inf)[:, None, None]
        return self._masks[window]


@dataclass(frozen=True, slots=True)
class PromptChunk:
    """Several new tokens of one request: tokens ``start``:``stop`` of the batch."""

    seat: Seat
    start: int
    stop: int
    position: int
    """Of the first token in its sequence."""


@dataclass(frozen=True, slots=True)
class ForwardPlan:
    """Which token of a flat batch belongs where."""

    decodes: Sequence[DecodeGroup]
    chunks: Sequence[PromptChunk]


def attend(
    plan: ForwardPlan,
    layout: KVLayout,
    layer: int,
    shape: Shape,
    query: Tensor,
    key: Tensor,
    value: Tensor,
) -> Tensor:
    """Store the new keys and values, then attend.

    Args:
        query: [tokens, query heads, key_dim]; key, value: [tokens, kv heads, dim].

    Returns:
        [tokens, query heads, value_dim]; 0 for the padding behind the planned tokens.
    """
    new = torch.cat([key, value], dim=-1)
    outputs = [_decode(group, layout, layer, shape, query, new) for group in plan.decodes]
    outputs += [_prompt(chunk, layout, layer, shape, query, new) for chunk in plan.chunks]
    padding = query.shape[0] - sum(output.shape[0] for output in outputs)
    if padding:
        outputs.append(query.new_zeros(padding, query.shape[1], layout.value_dim))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _decode(
    group: DecodeGroup, layout: KVLayout, layer: int, shape: Shape, query: Tensor, new: Tensor
) -> Tensor:
    slab = group.slab
    stored = slab.kv[layer]
    stored[group.rows, :, group.tail_positions] = new[group.start : group.stop]
    keys = group.longest
    # A slab's other rows (between two chunks of their prompts) are rare enough to copy around.
    tail = stored[: len(group.rows), :, :keys] if group.all_rows else stored[group.rows, :, :keys]
    # [n, kv heads, group, key_dim]
    q = query[group.start : group.stop].unflatten(1, (layout.heads, layout.group)) * shape.scale
    tail_keys, tail_values = tail.split([layout.key_dim, layout.value_dim], dim=-1)
    scores = _cap(torch.matmul(q, _transposed(tail_keys)), shape.softcap)
    scores += group.mask(shape.window, scores.dtype)
    if slab.trunk is not None:
        return _with_trunk(q, slab.trunk.kv[layer], scores, tail_values, layout, shape)
    probs = torch.softmax(scores, dim=-1, dtype=torch.float32).to(stored.dtype)
    return torch.matmul(probs, tail_values).flatten(1, 2)


def _with_trunk(
    q: Tensor,
    trunk: Tensor,
    tail_scores: Tensor,
    tail_values: Tensor,
    layout: KVLayout,
    shape: Shape,
) -> Tensor:
    """Attention to trunk and tail: one product per head and side of the trunk for all requests.

    Args:
        q: [n, heads, group, key_dim]; trunk: [heads, length, dims];
        tail_scores: [n, heads, group, keys]; tail_values: [n, heads, keys, value_dim].
    """
    n, _, group, _ = q.shape
    trunk_keys, trunk_values = trunk.split([layout.key_dim, layout.value_dim], dim=-1)
    rows = q.transpose(0, 1).flatten(1, 2)  # [heads, n * group, key_dim]
    trunk_scores = _cap(torch.bmm(rows, _transposed(trunk_keys)), shape.softcap)
    # Heads lead, so that each side of the softmax below is a matrix per head without a copy.
    scores = torch.cat([trunk_scores.unflatten(1, (n, group)), tail_scores.transpose(0, 1)], dim=-1)
    probs = torch.softmax(scores, dim=-1, dtype=torch.float32).to(trunk.dtype)
    on_trunk = torch.bmm(probs[..., : trunk.shape[1]].flatten(1, 2), trunk_values)
    output = torch.matmul(probs[..., trunk.shape[1] :].transpose(0, 1), tail_values)
    output += on_trunk.unflatten(1, (n, group)).transpose(0, 1)
    return output.flatten(1, 2)


def _prompt(
    chunk: PromptChunk, layout: KVLayout, layer: int, shape: Shape, query: Tensor, new: Tensor
) -> Tensor:
    slab = chunk.seat.slab
    row = slab.kv[layer, chunk.seat.row]  # [kv heads, capacity, dims]
    begin = chunk.position - slab.trunk_length
    count = chunk.stop - chunk.start
    row[:, begin : begin + count] = new[chunk.start : chunk.stop].transpose(0, 1)
    kv = row[:, : begin + count]
    if slab.trunk is not None:
        kv = torch.cat([slab.trunk.kv[layer], kv], dim=1)
    outputs: list[Tensor] = []
    for first in range(0, count, _QUERY_BLOCK):
        last = min(first + _QUERY_BLOCK, count)
        q = query[chunk.start + first : chunk.start + last].transpose(0, 1) * shape.scale
        seen = kv[:, : chunk.position + last]
        outputs.append(_prompt_block(q, seen, layout, shape))
    return torch.cat(outputs)


def _prompt_block(q: Tensor, kv: Tensor, layout: KVLayout, shape: Shape) -> Tensor:
    """Rows of a prompt, the last of which sees all of ``kv``.

    Args:
        q: [query heads, rows, key_dim]; kv: [kv heads, keys, dims].
    """
    rows, keys = q.shape[1], kv.shape[1]
    last = torch.arange(keys - rows, keys, device=q.device)[:, None]
    position = torch.arange(keys, device=q.device)
    hidden = position > last
    if shape.window is not None:
        hidden |= position <= last - shape.window
    mask = torch.zeros(rows, keys, dtype=q.dtype, device=q.device)
    mask.masked_fill_(hidden, -math.inf)
    grouped = q.reshape(layout.heads, layout.group * rows, -1)
    scores = torch.bmm(grouped, _transposed(kv[..., : layout.key_dim]))
    scores = _cap(scores, shape.softcap).unflatten(1, (layout.group, rows)) + mask
    probs = torch.softmax(scores, dim=-1, dtype=torch.float32).to(kv.dtype).flatten(1, 2)
    output = torch.bmm(probs, kv[..., layout.key_dim :])  # [kv heads, group * rows, value_dim]
    return output.unflatten(1, (layout.group, rows)).flatten(0, 1).transpose(0, 1)


def _transposed(keys: Tensor) -> Tensor:
    """Keys [..., keys, dim] as a right-hand side.

    A product would copy them itself, along the wrong axis: that took most of its time.
    """
    return keys.contiguous().transpose(-1, -2)


def _cap(scores: Tensor, softcap: float | None) -> Tensor:
    return scores if softcap is None else torch.tanh(scores / softcap) * softcap
