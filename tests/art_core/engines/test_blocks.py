"""The prefix cache's index against a plain model of it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from art_core.engines.embedded.blocks import Block, BlockTree, Match

SIZE = 4
Tokens = list[int]
_tokens = st.lists(st.integers(0, 1), min_size=1, max_size=20)
_actions = st.lists(
    st.tuples(st.sampled_from(["insert", "match", "hold", "drop"]), st.integers(0, 1), _tokens),
    max_size=40,
)


class Contents:
    """What the pool would hold: for every block index, the prefix each token belongs to."""

    def __init__(self) -> None:
        self.pool: dict[tuple[int, int], tuple[int, Tokens]] = {}

    def insert(self, tree: BlockTree, key: int, tokens: Tokens) -> None:
        for write in tree.insert(key, tokens):
            for i in range(write.stop - write.start):
                prefix = tokens[: write.start + i + 1]
                self.pool[write.block.index, write.offset + i] = (key, prefix)

    def check(self, key: int, tokens: Tokens, match: Match) -> None:
        for position in range(match.length):
            block = match.blocks[position // SIZE]
            assert self.pool[block.index, position % SIZE] == (key, tokens[: position + 1])


@settings(max_examples=300, deadline=None)
@given(_actions, st.integers(1, 12))
def test_a_match_always_points_at_kv_of_exactly_that_prefix(
    actions: list[tuple[str, int, Tokens]], num_blocks: int
) -> None:
    tree, contents = BlockTree(num_blocks, SIZE), Contents()
    held: list[tuple[int, Tokens, Match]] = []
    for action, key, tokens in actions:
        if action == "insert":
            contents.insert(tree, key, tokens)
        elif action == "match":
            contents.check(key, tokens, tree.match(key, tokens))
        elif action == "hold":
            match = tree.match(key, tokens)
            tree.acquire(match.blocks)
            held.append((key, tokens, match))
        else:
            for _, _, match in [h for h in held if h[0] == key]:
                tree.release(match.blocks)
            held = [h for h in held if h[0] != key]
            tree.drop(key)
            assert tree.match(key, tokens).length == 0
        for holder, held_tokens, match in held:  # never evicted from under a running request
            contents.check(holder, held_tokens, match)
        assert 0 <= tree.used_blocks <= num_blocks


@settings(max_examples=100, deadline=None)
@given(st.lists(_tokens, min_size=1, max_size=12))
def test_with_room_enough_everything_inserted_is_found(sequences: list[Tokens]) -> None:
    tree = BlockTree(200, SIZE)
    for tokens in sequences:
        tree.insert(0, tokens)
    for tokens in sequences:
        assert tree.match(0, tokens).length == len(tokens)
        assert tree.match(1, tokens).length == 0


def test_the_least_recently_used_prefix_goes_first() -> None:
    tree = BlockTree(3, SIZE)
    old, kept, new = [0] * SIZE, [1] * SIZE, [2] * SIZE
    tree.insert(0, old)
    tree.insert(0, kept)
    tree.match(0, old)
    tree.insert(0, new)
    tree.insert(0, [3] * SIZE)
    assert tree.match(0, kept).length == 0
    assert tree.match(0, old).length == SIZE


def test_a_parent_outlives_its_children() -> None:
    tree = BlockTree(2, SIZE)
    tree.insert(0, [0] * (2 * SIZE))
    tree.insert(0, [1] * SIZE)
    assert tree.match(0, [0] * (2 * SIZE)).length == SIZE


def test_blocks_in_use_are_never_given_away() -> None:
    tree = BlockTree(2, SIZE)
    tree.insert(0, [0] * (2 * SIZE))
    held: list[Block] = tree.match(0, [0] * (2 * SIZE)).blocks
    tree.acquire(held)
    assert tree.insert(0, [1] * SIZE) == []
    tree.release(held)
    assert len(tree.insert(0, [1] * SIZE)) == 1
