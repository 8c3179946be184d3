# pyright: reportUnknownMemberType=false
"""The tensors that keys and values live in.

Three places, all holding keys and values side by side in the last dimension:

- the **pool**, blocks that outlive requests, indexed by `BlockTree`;
- **trunks**, a prefix that several running requests share, contiguous, so that one
  matrix product serves them all;
- **slabs**, the rest of each running request, one row each, rows of a slab hanging
  off the same trunk, so that they are attended to as one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from art_core.engines.embedded.blocks import Block, Write


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayout:
    """Shape of one token's keys and values in every layer."""

    layers: int
    heads: int
    """Key/value heads; each serves ``group`` query heads."""
    group: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_token(self) -> int:
        return self.layers * self.heads * (self.key_dim + self.value_dim) * self.dtype.itemsize

    def empty(self, rows: int, tokens: int) -> Tensor:
        """Uninitialised [layers, rows, heads, tokens, key_dim + value_dim]."""
        shape = (self.layers, rows, self.heads, tokens, self.key_dim + self.value_dim)
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def zeros(self, rows: int, tokens: int) -> Tensor:
        """For what is read beyond what was written: masked, but NaN would come through."""
        return self.empty(rows, tokens).zero_()


class Pool:
    """KV of cached blocks: [layers, blocks, heads, block_size, dims]."""

    def __init__(self, layout: KVLayout, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self._kv = layout.empty(num_blocks, block_size)

    def read(self, blocks: Sequence[Block], target: Tensor) -> None:
        """Copy the first tokens of consecutive ``blocks`` into ``target``.

        Args:
            target: [layers, heads, tokens, dims], tokens ≤ len(blocks) * block_size.
        """
        if not blocks:
            return
        index = torch.tensor([block.index for block in blocks], device=self._kv.device)
        for pooled, into in zip(self._kv, target, strict=True):  # a layer at a time: small copies
            run = pooled[index].transpose(0, 1).flatten(1, 2)  # [heads, tokens, dims]
            into.copy_(run[:, : into.shape[1]])

    def write(self, writes: Sequence[Write], source: Tensor, source_start: int) -> None:
        """Copy new tokens out of a request.

        Args:
            source: [layers, heads, tokens, dims] of consecutive tokens,
                beginning with token ``source_start`` of the sequence.
        """
        whole = [w for w in writes if w.stop - w.start == self.block_size]
        for w in writes:
            if w.stop - w.start < self.block_size:
                piece = source[:, :, w.start - source_start : w.stop - source_start]
                self._kv[:, w.block.index, :, w.offset : w.offset + w.stop - w.start] = piece
        if whole:
            # Whole blocks of one insertion follow one another.
            index = torch.tensor([w.block.index for w in whole], device=self._kv.device)
            run = source[:, :, whole[0].start - source_start : whole[-1].stop - source_start]
            self._kv[:, index] = run.unflatten(2, (len(whole), -1)).transpose(1, 2)


@dataclass(slots=True, eq=False)
class Trunk:
    """KV of a prefix shared by the requests in the slabs that hang off it."""

    blocks: list[Block]
    kv: Tensor
    """[layers, heads, length, dims]"""
    slabs: int = 0

    @property
    def length(self) -> int:
        return self.kv.shape[2]


@dataclass(slots=True, eq=False)
class Slab:
    """A batch of requests that share a trunk (or have none): one row of KV each.

    Rows 0 … len(seats)-1 are in use; a request that leaves is replaced by the last.
    """

    trunk: Trunk | None
    capacity: int
    """Tokens per row."""
    kv: Tensor
    """[layers, rows, heads, capacity, dims]"""
    seats: list[Seat] = field(default_factory=list["Seat"])

    @property
    def trunk_length(self) -> int:
        return self.trunk.length if self.trunk is not None else 0

    def resize(self, layout: KVLayout, rows: int) -> None:
        kv = layout.zeros(rows, self.capacity)
        kv[:, : len(self.seats)] = self.kv[:, : len(self.seats)]
        self.kv = kv

    def add(self) -> Seat:
        seat = Seat(self, len(self.seats))
        self.seats.append(seat)
        return seat

    def remove(self, seat: Seat) -> None:
        last = self.seats.pop()
        if last is not seat:
            self.kv[:, seat.row] = self.kv[:, last.row]
            last.row = seat.row
            self.seats[last.row] = last


@dataclass(slots=True, eq=False)
class Seat:
    """Where one running request's KV is: behind its slab's trunk, in a row of the slab."""

    slab: Slab
    row: int
    blocks: list[Block] = field(default_factory=list[Block])
    """Cached blocks under this request's prefix, held while it runs."""

    @property
    def kv(self) -> Tensor:
        """[layers, heads, capacity, dims], the tokens after the trunk's."""
        return self.slab.kv[:, self.row]

    @property
    def capacity(self) -> int:
        """Tokens of the sequence there is room for, the trunk's included."""
        return self.slab.trunk_length + self.slab.capacity
