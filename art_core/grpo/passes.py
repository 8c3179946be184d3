"""Cutting the rows of a step into forward passes that fit in memory."""

from __future__ import annotations

from collections.abc import Sequence

from art_core.grpo.rows import Row
from art_core.grpo.tree import shared_prefixes, sort_rows


def plan_passes(rows: Sequence[Row], max_tokens: int, enough_tokens: int = 1) -> list[list[Row]]:
    """Cut the rows into trees of at most ``max_tokens`` distinct tokens each.

    The rule: rows stay in lexicographic order, so a cut before a row costs the tokens
    that the row shares with the one before it, which are computed again. A pass costs
    its distinct tokens, or ``enough_tokens`` if that is more: below that many a pass
    leaves the machine half idle. Of all ways to cut, the cheapest is taken, and of
    those the one with most passes, which needs the least memory. A row longer than
    ``max_tokens`` is a pass of its own.
    """
    ordered = sort_rows(rows)
    shared = shared_prefixes(ordered)
    lengths = [len(row.inputs) for row in ordered]
    best: list[tuple[int, int]] = [(0, 0)]
    cuts = [0]
    for end in range(1, len(ordered) + 1):
        options: list[tuple[int, int, int]] = []
        later = 0  # distinct tokens of the rows after the first of this pass
        for start in range(end - 1, -1, -1):
            tokens = lengths[start] + later
            if tokens > max_tokens and options:
                break
            cost, negative_passes = best[start]
            options.append((cost + max(tokens, enough_tokens), negative_passes - 1, start))
            later += lengths[start] - shared[start]
        cost, negative_passes, start = min(options)
        best.append((cost, negative_passes))
        cuts.append(start)
    return [ordered[start:end] for start, end in _spans(cuts)]


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


def _spans(cuts: Sequence[int]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    end = len(cuts) - 1
    while end > 0:
        spans.append((cuts[end], end))
        end = cuts[end]
    return spans[::-1]
