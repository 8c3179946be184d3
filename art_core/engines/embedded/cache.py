"""Who gets which KV memory: prefix reuse, trunks, rows, and the budget over them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from art_core.engines.embedded.blocks import Block, BlockTree, Match
from art_core.engines.embedded.kv import KVLayout, Pool, Seat, Slab, Trunk

_BLOCK_SIZE = 16
_MIN_CAPACITY = 64
_MIN_TRUNK = 64
"""Tokens. A shorter shared prefix isn't worth a matrix product of its own."""


class KVCache:
    """KV memory of a fixed number of tokens: half for the pool, half for running requests.

    Every method that takes memory returns None or False when there is none left;
    what to do then (wait, or preempt another request) is the scheduler's decision.
    """

    def __init__(self, layout: KVLayout, budget_bytes: int, *, share_trunks: bool = True) -> None:
        self.layout = layout
        self.share_trunks = share_trunks
        blocks = budget_bytes // 2 // (layout.bytes_per_token * _BLOCK_SIZE)
        self.tree = BlockTree(blocks, _BLOCK_SIZE)
        self._pool = Pool(layout, blocks, _BLOCK_SIZE)
        self._limit = blocks * _BLOCK_SIZE
        self._used = 0
        self._slabs: dict[tuple[Hashable, Trunk | None, int], Slab] = {}
        self._trunks: dict[Block, Trunk] = {}

    @property
    def limit(self) -> int:
        """Tokens of running requests that there is memory for."""
        return self._limit

    @property
    def used(self) -> int:
        """Tokens allocated to running requests."""
        return self._used

    @property
    def longest(self) -> int:
        """The longest sequence that certainly fits when it runs alone."""
        capacity = _MIN_CAPACITY
        # While a sequence moves to a larger row, it has the old one too.
        while capacity * 2 + capacity <= self._limit:
            capacity *= 2
        return capacity if capacity <= self._limit else 0

    def match(self, key: Hashable, tokens: Sequence[int], *, multiple: int = 1) -> Match:
        """The cached prefix of ``tokens``, held for a request until `leave` or `release`.

        Its length is a multiple of ``multiple``, itself 1 or whole blocks.
        """
        match = self.tree.match(key, tokens)
        length = match.length // multiple * multiple
        match = Match(match.blocks[: -(-length // _BLOCK_SIZE)], length)
        self.tree.acquire(match.blocks)
        return match

    def release(self, match: Match) -> None:
        """Give a match back that no seat was taken with."""
        self.tree.release(match.blocks)

    def seat(self, key: Hashable, match: Match, tokens: int) -> Seat | None:
        """A place for a request of ``tokens`` tokens, its matched prefix filled in."""
        trunk = self._choose_trunk(match) if self.share_trunks else None
        start = trunk.length if trunk is not None else 0
        seat = self._take_row(key, trunk, tokens - start)
        if seat is None:
            if trunk is not None and trunk.slabs == 0:
                self._drop_trunk(trunk)
            return None
        seat.blocks = match.blocks
        self._pool.read(match.blocks[start // _BLOCK_SIZE :], seat.kv[:, :, : match.length - start])
        return seat

    def make_room(self, key: Hashable, seat: Seat, tokens: int) -> Seat | None:
        """The seat itself, or the larger one that its request was moved to."""
        if tokens <= seat.capacity:
            return seat
        slab = seat.slab
        larger = self._take_row(key, slab.trunk, tokens - slab.trunk_length)
        if larger is None:
            return None
        larger.blocks = seat.blocks
        larger.kv[:, :, : slab.capacity] = seat.kv
        self._leave_row(key, seat)
        return larger

    def store(self, key: Hashable, seat: Seat, tokens: Sequence[int]) -> None:
        """Keep the KV of ``tokens``, all computed, for later requests."""
        # What isn't in the pool yet lies behind the trunk: the trunk's blocks are held.
        self._pool.write(self.tree.insert(key, tokens), seat.kv, seat.slab.trunk_length)

    def leave(self, key: Hashable, seat: Seat) -> None:
        """The request has finished, or is preempted."""
        self.tree.release(seat.blocks)
        self._leave_row(key, seat)

    def forget(self, key: Hashable) -> None:
        """Drop what is cached under ``key``; no request of it runs any more."""
        self.tree.drop(key)

    def _choose_trunk(self, match: Match) -> Trunk | None:
        """The shared prefix whose sharing saves most: length x other running users."""
        best, best_saving, depth = None, 0, 0
        for block in match.blocks[: match.length // _BLOCK_SIZE]:
            depth += _BLOCK_SIZE
            saving = depth * (block.users - 1)
            if depth >= _MIN_TRUNK and saving > best_saving:
                best, best_saving = depth // _BLOCK_SIZE, saving
        return self._get_trunk(match.blocks[:best]) if best is not None else None

    def _get_trunk(self, blocks: list[Block]) -> Trunk | None:
        existing = self._trunks.get(blocks[-1])
        if existing is not None:
            return existing
        length = len(blocks) * _BLOCK_SIZE
        if self._used + length > self._limit:
            return None
        trunk = Trunk(blocks, self.layout.empty(1, length)[:, 0])
        self._pool.read(blocks, trunk.kv)
        self.tree.acquire(blocks)
        self._used += length
        self._trunks[blocks[-1]] = trunk
        return trunk

    def _drop_trunk(self, trunk: Trunk) -> None:
        self.tree.release(trunk.blocks)
        self._used -= trunk.length
        del self._trunks[trunk.blocks[-1]]

    def _take_row(self, key: Hashable, trunk: Trunk | None, tokens: int) -> Seat | None:
        capacity = _MIN_CAPACITY
        while capacity < tokens:
            capacity *= 2
        slab = self._slabs.get((key, trunk, capacity))
        if slab is None:
            slab = Slab(trunk, capacity, self.layout.empty(0, capacity))
        rows = slab.kv.shape[1]
        if len(slab.seats) == rows and not self._grow(slab, rows):
            return None
        if not slab.seats:
            self._slabs[key, trunk, capacity] = slab
            if trunk is not None:
                trunk.slabs += 1
        return slab.add()

    def _grow(self, slab: Slab, rows: int) -> bool:
        """Twice the rows; where memory doesn't reach, one more."""
        for extra in (max(rows, 1), 1):
            if self._used + extra * slab.capacity <= self._limit:
                slab.resize(self.layout, rows + extra)
                self._used += extra * slab.capacity
                return True
        return False

    def _leave_row(self, key: Hashable, seat: Seat) -> None:
        slab = seat.slab
        slab.remove(seat)
        rows, left = slab.kv.shape[1], len(slab.seats)
        if left == 0:
            self._used -= rows * slab.capacity
            del self._slabs[key, slab.trunk, slab.capacity]
            if slab.trunk is not None:
                slab.trunk.slabs -= 1
                if slab.trunk.slabs == 0:
                    self._drop_trunk(slab.trunk)
        elif left <= rows // 4:
            slab.resize(self.layout, rows // 2)
            self._used -= (rows - rows // 2) * slab.capacity
