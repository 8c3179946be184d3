"""Cutting the rows of a step into forward passes that fit in memory."""

from __future__ import annotations

from collections.abc import Sequence

from art_core.grpo.rows import Row
from art_core.grpo.tree import shared_prefixes, sort_rows


def plan_passes(rows: Sequence[Row], max_tokens: int) -> list[list[Row]]:
    """Cut the rows into trees of at most ``max_tokens`` distinct tokens each.

    The rule: rows stay in lexicographic order, and a cut before a row costs the
    tokens that the row shares with the one before it, since they are computed
    again. Of all ways to cut, the cheapest is taken, and of those the one with
    the fewest passes. A row longer than ``max_tokens`` is a pass of its own.
    """
    ordered = sort_rows(rows)
    shared = shared_prefixes(ordered)
    lengths = [len(row.inputs) for row in ordered]
    count = len(ordered)
    best: list[tuple[int, int]] = [(0, 0)] + [(0, 0)] * count
    cut: list[int] = [0] * (count + 1)
    for end in range(1, count + 1):
        options: list[tuple[tuple[int, int], int]] = []
        tail = 0  # tokens of the rows after the first of this pass
        for start in range(end - 1, -1, -1):
            tokens = tail + lengths[start]
            if tokens > max_tokens and options:
                break
            repeated, passes = best[start]
            options.append(((repeated + shared[start], passes + 1), start))
            tail += lengths[start] - shared[start]
        best[end], cut[end] = min(options)
    return [ordered[start:end] for start, end in _spans(cut, count)]


def plan_paths(rows: Sequence[Row]) -> list[list[Row]]:
    """Passes of one plain path each, for models that can't be given a tree.

    A row whose inputs begin the next row's shares its path.
    """
    ordered = sort_rows(rows)
    paths: list[list[Row]] = []
    for row, shared in zip(ordered, shared_prefixes(ordered), strict=True):
        if paths and shared == len(paths[-1][-1].inputs):
            paths[-1].append(row)
        else:
            paths.append([row])
    return paths


def _spans(cut: Sequence[int], count: int) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    end = count
    while end > 0:
        spans.append((cut[end], end))
        end = cut[end]
    return spans[::-1]
