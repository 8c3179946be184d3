"""Prefix trees against their definition."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from art_core.grpo.passes import plan_passes, plan_paths
from art_core.grpo.rows import Row
from art_core.grpo.tree import PackedRows, pack, sort_rows


def make_row(tokens: list[int], rollout: int = 0, trained: list[int] | None = None) -> Row:
    positions = np.arange(1, len(tokens)) if trained is None else np.array(trained)
    return Row(
        rollout=rollout,
        token_ids=np.array(tokens),
        trained=positions,
        sampler_logprobs=-positions.astype(float),
        policy_versions=np.zeros_like(positions),
    )


sequences = st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=9), min_size=1, max_size=7)


def rows_of(tokens: list[list[int]]) -> list[Row]:
    return [make_row(sequence, rollout) for rollout, sequence in enumerate(tokens)]


def paths(packed: PackedRows) -> dict[int, list[int]]:
    """Each node's tokens from the root, following positions back through the ancestors."""
    tree = packed.tree
    open_path: list[int] = []
    result: dict[int, list[int]] = {}
    for node, (token, depth) in enumerate(
        zip(tree.token_ids.tolist(), tree.positions.tolist(), strict=True)
    ):
        open_path = [*open_path[:depth], token]
        result[node] = open_path
    return result


@given(sequences)
def test_each_distinct_prefix_is_one_node(tokens: list[list[int]]) -> None:
    packed = pack(sort_rows(rows_of(tokens)))
    prefixes = {tuple(s[:i]) for s in tokens for i in range(1, len(s))}
    found = [tuple(path) for path in paths(packed).values()]
    assert len(found) == len(set(found))
    assert set(found) == prefixes


@given(sequences)
def test_terms_are_the_trained_tokens_of_all_rows(tokens: list[list[int]]) -> None:
    packed = pack(sort_rows(rows_of(tokens)))
    node_path = paths(packed)
    found = sorted(
        (
            rollout,
            node_path[int(packed.queries[packed.pair_query[pair]])],
            packed.pair_token[pair],
            logprob,
        )
        for pair, rollout, logprob in zip(
            packed.term_pair, packed.term_rollout, packed.sampler_logprobs, strict=True
        )
    )
    expected = sorted(
        (rollout, sequence[:i], sequence[i], -float(i))
        for rollout, sequence in enumerate(tokens)
        for i in range(1, len(sequence))
    )
    assert found == expected


@given(sequences)
def test_pairs_are_distinct_and_ordered(tokens: list[list[int]]) -> None:
    packed = pack(sort_rows(rows_of(tokens)))
    pairs = list(zip(packed.pair_query.tolist(), packed.pair_token.tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    assert packed.queries.tolist() == sorted(set(packed.queries.tolist()))


@given(sequences)
def test_segments_say_who_descends_from_whom(tokens: list[list[int]]) -> None:
    packed = pack(sort_rows(rows_of(tokens)))
    node_path = paths(packed)
    nodes = len(node_path)
    assert [s.start for s in packed.tree.segments] == [
        0,
        *(s.end for s in packed.tree.segments[:-1]),
    ]
    assert packed.tree.segments[-1].end == nodes
    subtree_end = np.repeat(
        [s.subtree_end for s in packed.tree.segments],
        [s.end - s.start for s in packed.tree.segments],
    )
    for a, b in itertools.product(range(nodes), repeat=2):
        is_ancestor = node_path[b][: len(node_path[a])] == node_path[a]
        assert is_ancestor == (a <= b < subtree_end[a])


def test_a_row_that_extends_another_makes_no_new_segment() -> None:
    packed = pack(sort_rows([make_row([1, 2, 3, 4, 5]), make_row([1, 2, 3])]))
    assert len(packed.tree.segments) == 1


def cost(passes: list[list[Row]], enough: int) -> int:
    return sum(max(len(pack(part).tree.token_ids), enough) for part in passes)


@settings(deadline=None)
@given(sequences, st.integers(1, 30), st.integers(1, 12))
def test_passes_are_the_cheapest_cut(tokens: list[list[int]], limit: int, enough: int) -> None:
    rows = rows_of(tokens)
    passes = plan_passes(rows, limit, enough)
    ordered = sort_rows(rows)
    assert [id(row) for part in passes for row in part] == [id(row) for row in ordered]
    assert all(len(part) == 1 or len(pack(part).tree.token_ids) <= limit for part in passes)
    best = min(
        cost(parts, enough)
        for cuts in itertools.product([False, True], repeat=len(rows) - 1)
        for parts in [split(ordered, cuts)]
        if all(len(part) == 1 or len(pack(part).tree.token_ids) <= limit for part in parts)
    )
    assert cost(passes, enough) == best


def split(rows: list[Row], cuts: tuple[bool, ...]) -> list[list[Row]]:
    parts = [[rows[0]]]
    for row, cut in zip(rows[1:], cuts, strict=True):
        parts.append([row]) if cut else parts[-1].append(row)
    return parts


@given(sequences)
def test_paths_hold_every_row_and_no_branch(tokens: list[list[int]]) -> None:
    parts = plan_paths(rows_of(tokens))
    assert sum(len(part) for part in parts) == len(tokens)
    for part in parts:
        tree = pack(part).tree
        assert tree.positions.tolist() == list(range(len(tree.token_ids)))
