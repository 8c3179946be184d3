"""Prefix trees: each distinct token of many rows once, in depth-first order.

Rows that begin with the same tokens share them. Sorted lexicographically, each
row repeats a prefix of the row before it and adds new tokens, so writing only
the new tokens one after the other is a depth-first walk of the tree: a node's
ancestors come before it, and its descendants are the contiguous nodes after it.
A *segment* is a run of nodes without a branch inside; attention works on those.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from art_core.grpo.rows import FloatArray, IntArray, Row


class Segment(NamedTuple):
    """Nodes ``start:end``, each the only child of the one before it.

    The descendants of its last node are the nodes ``end:subtree_end``.
    """

    start: int
    end: int
    subtree_end: int


@dataclass(frozen=True, slots=True, eq=False)
class PrefixTree:
    """A forest of N token nodes."""

    token_ids: IntArray
    """[N]"""
    positions: IntArray
    """[N] depth of each node, 0 at a root: the position that the model sees."""
    segments: tuple[Segment, ...]
    """They cover the nodes, in order."""

    @property
    def longest_path(self) -> int:
        return int(self.positions.max()) + 1 if len(self.positions) else 0


@dataclass(frozen=True, slots=True, eq=False)
class PackedRows:
    """Rows as one tree, and what is trained on it.

    A *query* is a node whose next token is trained; a *pair* is a query with one
    such token; a *term* is one trained token of one row. A pair whose token several
    rows sampled has several terms, each with its rollout's own advantage.
    """

    tree: PrefixTree
    queries: IntArray
    """[Q] nodes, ascending."""
    pair_query: IntArray
    """[U] index into ``queries``, ascending."""
    pair_token: IntArray
    """[U] the token that follows."""
    term_pair: IntArray
    """[T] index into the pairs."""
    term_rollout: IntArray
    """[T] index into `Batch.rollouts`."""
    sampler_logprobs: FloatArray
    """[T]"""


def sort_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows in the lexicographic order of their inputs, a prefix before what extends it."""
    return sorted(rows, key=lambda row: row.inputs.astype(">u4").tobytes())


def shared_prefixes(rows: Sequence[Row]) -> list[int]:
    """How many input tokens each of the sorted rows shares with the one before it (0 first)."""
    pairs = itertools.pairwise(rows)
    return [0] * bool(rows) + [_shared(a.inputs, b.inputs) for a, b in pairs]


def pack(rows: Sequence[Row]) -> PackedRows:
    """Pack sorted, non-empty ``rows`` into one forest."""
    shared = shared_prefixes(rows)
    paths: list[IntArray] = []
    bounds: set[int] = set()
    size = 0
    for row, prefix in zip(rows, shared, strict=True):
        inherited = paths[-1][:prefix] if paths else np.empty(0, dtype=np.int64)
        fresh = len(row.inputs) - prefix
        continues_last = prefix > 0 and inherited[-1] == size - 1
        if fresh and not continues_last:
            bounds |= {size, int(inherited[-1]) + 1 if prefix else size}
        paths.append(np.concatenate([inherited, np.arange(size, size + fresh)]))
        size += fresh
    fresh_parts = list(zip(rows, shared, strict=True))
    positions = np.concatenate([np.arange(s, len(row.inputs)) for row, s in fresh_parts])
    tree = PrefixTree(
        token_ids=np.concatenate([row.inputs[s:] for row, s in fresh_parts]),
        positions=positions,
        segments=_segments(positions, sorted(bounds | {size})),
    )
    nodes = np.concatenate([path[row.trained - 1] for path, row in zip(paths, rows, strict=True)])
    targets = np.concatenate([row.token_ids[row.trained] for row in rows])
    pairs, term_pair = np.unique(np.stack([nodes, targets]), axis=1, return_inverse=True)
    queries, pair_query = np.unique(pairs[0], return_inverse=True)
    return PackedRows(
        tree=tree,
        queries=queries,
        pair_query=pair_query,
        pair_token=pairs[1],
        term_pair=term_pair.reshape(-1),
        term_rollout=np.repeat([row.rollout for row in rows], [len(row.trained) for row in rows]),
        sampler_logprobs=np.concatenate([row.sampler_logprobs for row in rows]),
    )


def _shared(a: IntArray, b: IntArray) -> int:
    length = min(len(a), len(b))
    different = np.flatnonzero(a[:length] != b[:length])
    return int(different[0]) if different.size else length


def _segments(positions: IntArray, bounds: Sequence[int]) -> tuple[Segment, ...]:
    """Segments between ``bounds``; a subtree ends at the next node that isn't deeper."""
    spans = [(start, end) for start, end in zip([0, *bounds], bounds, strict=False) if start < end]
    subtree_ends = [0] * len(spans)
    open_spans: list[int] = []
    for index, (start, _) in enumerate(spans):
        while open_spans and positions[spans[open_spans[-1]][1] - 1] >= positions[start]:
            subtree_ends[open_spans.pop()] = start
        open_spans.append(index)
    for index in open_spans:
        subtree_ends[index] = spans[-1][1]
    return tuple(
        Segment(start, end, subtree_end)
        for (start, end), subtree_end in zip(spans, subtree_ends, strict=True)
    )
