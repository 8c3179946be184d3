"""Which token prefixes have their KV in the pool: a tree of fixed-size blocks per policy.

Bookkeeping alone; the tensors are in `art_core.engines.embedded.kv`. A block holds
up to ``block_size`` consecutive tokens, and is reached through the blocks of the
tokens before it, so a path from a root spells a prefix. Only a leaf may be partly
filled. Matching is by token: a block whose first tokens agree serves that many.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(slots=True, eq=False)
class Block:
    """KV of ``tokens``, at ``index`` in the pool."""

    index: int
    parent: Block | None
    tokens: tuple[int, ...] = ()
    children: dict[tuple[int, ...], Block] = field(default_factory=dict[tuple[int, ...], "Block"])
    users: int = 0
    """Running requests whose prefix goes through here; such a block isn't evicted."""
    last_used: int = 0
    alive: bool = True


class Match(NamedTuple):
    """The longest cached prefix of some tokens."""

    blocks: list[Block]
    length: int
    """Tokens covered; the last block may be covered in part."""


class Write(NamedTuple):
    """Tokens ``start``:``stop`` of the inserted sequence belong into ``block``."""

    block: Block
    start: int
    stop: int
    offset: int
    """Where in the block ``start`` goes."""


class BlockTree:
    """The prefix cache's index, with least-recently-used eviction."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._roots: dict[Hashable, Block] = {}
        self._clock = 0
        self._leaves: list[tuple[int, int, Block]] = []
        """Heap of eviction candidates by age; entries may be out of date."""

    @property
    def used_blocks(self) -> int:
        return self.num_blocks - len(self._free)

    def match(self, key: Hashable, tokens: Sequence[int]) -> Match:
        """The longest prefix of ``tokens`` cached under ``key``; marks it as just used."""
        path: list[Block] = []
        length = 0
        block = self._roots.get(key)
        while block is not None and length < len(tokens):
            piece = tuple(tokens[length : length + self.block_size])
            block, common = _best_child(block, piece)
            if block is None:
                break
            self._touch(block)
            path.append(block)
            length += common
            if common < self.block_size:
                break
        return Match(path, length)

    def insert(self, key: Hashable, tokens: Sequence[int]) -> list[Write]:
        """Index ``tokens`` under ``key``; return what has to be copied into the pool.

        When every block is in use, only a prefix is taken.
        """
        writes: list[Write] = []
        # Root blocks have no tokens and no place in the pool.
        block = self._roots.setdefault(key, Block(index=-1, parent=None))
        path: list[Block] = []
        for start in range(0, len(tokens), self.block_size):
            piece = tuple(tokens[start : start + self.block_size])
            child, common = _best_child(block, piece)
            if child is None or common < min(len(piece), len(child.tokens)):
                child, common = self._allocate(block), 0
            if child is None:
                break
            if common < len(piece):
                writes.append(Write(child, start + common, start + len(piece), common))
                self._set_tokens(child, piece)
            self._touch(child)
            self.acquire([child])  # not to be evicted by what follows
            path.append(child)
            block = child
        self.release(path)
        return writes

    def acquire(self, blocks: Sequence[Block]) -> None:
        """A running request goes through these blocks: keep them."""
        for block in blocks:
            block.users += 1

    def release(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            block.users -= 1
            self._touch(block)

    def drop(self, key: Hashable) -> None:
        """Forget everything under ``key``."""
        stack = list(self._roots.pop(key).children.values()) if key in self._roots else []
        while stack:
            block = stack.pop()
            stack.extend(block.children.values())
            self._discard(block)

    def _allocate(self, parent: Block) -> Block | None:
        if not self._free and not self._evict_one():
            return None
        return Block(index=self._free.pop(), parent=parent)

    def _evict_one(self) -> bool:
        while self._leaves:
            last_used, _, block = heapq.heappop(self._leaves)
            current = block.alive and block.last_used == last_used
            if not current or block.children or block.users:
                continue  # touched since, grown, or in use: it is (or will be) listed anew
            parent = block.parent
            self._discard(block)
            if parent is not None and parent.parent is not None and not parent.children:
                self._list_leaf(parent)
            return True
        return False

    def _discard(self, block: Block) -> None:
        block.alive = False
        self._free.append(block.index)
        if block.parent is not None:
            block.parent.children.pop(block.tokens, None)

    def _set_tokens(self, block: Block, tokens: tuple[int, ...]) -> None:
        siblings = block.parent.children if block.parent is not None else {}
        siblings.pop(block.tokens, None)
        block.tokens = tokens
        siblings[tokens] = block

    def _touch(self, block: Block) -> None:
        self._clock += 1
        block.last_used = self._clock
        if block.alive and not block.children:
            self._list_leaf(block)

    def _list_leaf(self, block: Block) -> None:
        heapq.heappush(self._leaves, (block.last_used, block.index, block))
        if len(self._leaves) > 64 + 4 * self.num_blocks:
            self._leaves = [e for e in self._leaves if e[2].alive and e[2].last_used == e[0]]
            heapq.heapify(self._leaves)


def _best_child(parent: Block, piece: tuple[int, ...]) -> tuple[Block | None, int]:
    """The child that shares most leading tokens with ``piece``, and how many."""
    exact = parent.children.get(piece)
    if exact is not None:
        return exact, len(piece)
    best, length = None, 0
    for tokens, child in parent.children.items():
        common = _common_prefix(tokens, piece)
        if common > length:
            best, length = child, common
    return best, length


def _common_prefix(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))
