# pyright: reportUnknownMemberType=false
"""One step: scheduled work to flat batches, forward passes, and sampled tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from art_core.engines.embedded.attention import DecodeGroup, ForwardPlan, PromptChunk
from art_core.engines.embedded.kv import Seat
from art_core.engines.embedded.model import ServedModel
from art_core.engines.embedded.request import Request
from art_core.engines.embedded.sampler import Sampled, sample
from art_core.engines.embedded.scheduler import CHUNK, Work
from art_core.errors import EngineError


class Runner:
    """Runs the work of one model at a time.

    Args:
        fixed_rows: in deterministic mode the number of rows that every decoding batch
            is padded to (prompts are computed one chunk at a time); else None.
    """

    def __init__(self, device: torch.device, *, fixed_rows: int | None) -> None:
        self._device = device
        self._fixed_rows = fixed_rows

    @torch.inference_mode()
    def run(self, model: ServedModel, works: Sequence[Work]) -> list[tuple[Request, Sampled]]:
        """Compute KV for all ``works``; sample for the requests that have all of theirs."""
        if self._fixed_rows is None:
            return self._run_batch(model, works, pad_to=0)
        results: list[tuple[Request, Sampled]] = []
        for work in works:
            if not work.decode:
                results += self._run_batch(model, [work], pad_to=CHUNK)
        decodes = [work for work in works if work.decode]
        if decodes:
            results += self._run_batch(model, decodes, pad_to=self._fixed_rows)
        return results

    def _run_batch(
        self, model: ServedModel, works: Sequence[Work], pad_to: int
    ) -> list[tuple[Request, Sampled]]:
        works = sorted(works, key=_batch_order)
        tokens: list[int] = []
        positions: list[int] = []
        ends: list[int] = []
        for work in works:
            start, stop = work.request.computed, work.request.computed + work.count
            tokens += work.request.tokens[start:stop]
            positions += range(start, stop)
            ends.append(len(tokens) - 1)
        done = [i for i, work in enumerate(works) if work.count == work.request.pending]
        wanted = [ends[i] for i in done]
        logits = self._forward(model, works, tokens, positions, wanted, pad_to)
        for work in works:
            work.request.computed += work.count
        requests = [works[i].request for i in done]
        if not requests:
            return []
        draws = [request.draw() for request in requests]
        return list(zip(requests, sample(logits[: len(requests)], draws), strict=True))

    def _forward(
        self,
        model: ServedModel,
        works: Sequence[Work],
        tokens: list[int],
        positions: list[int],
        wanted: list[int],
        pad_to: int,
    ) -> Tensor:
        padding = [0] * (pad_to - len(tokens))
        rows = wanted or [0]  # layers needn't cope with no row at all
        if works[0].decode and pad_to:
            rows = wanted + [0] * (pad_to - len(wanted))
        return model.forward(
            self._tensor(tokens + padding),
            self._tensor(positions + padding),
            self._plan(works),
            self._tensor(rows),
        )

    def _plan(self, works: Sequence[Work]) -> ForwardPlan:
        decodes: list[DecodeGroup] = []
        chunks: list[PromptChunk] = []
        start = 0
        for (decode, _), group in groupby(works, key=self._group_key):
            members = list(group)
            if decode:
                decodes.append(self._decode_group(members, start))
                start += len(members)
            else:
                for work in members:
                    seat, position = _seat(work), work.request.computed
                    chunks.append(PromptChunk(seat, start, start + work.count, position))
                    start += work.count
        return ForwardPlan(decodes, chunks)

    def _group_key(self, work: Work) -> tuple[bool, int]:
        """Work attended to in one go; in deterministic mode each request is on its own."""
        if not work.decode:
            return False, 0
        return True, id(_seat(work).slab) if self._fixed_rows is None else id(work.request)

    def _decode_group(self, works: Sequence[Work], start: int) -> DecodeGroup:
        slab = _seat(works[0]).slab
        tails = [work.request.computed - slab.trunk_length for work in works]
        return DecodeGroup(
            slab=slab,
            start=start,
            stop=start + len(works),
            rows=self._tensor([_seat(work).row for work in works]),
            tail_positions=self._tensor(tails),
            longest=max(tails) + 1,
            all_rows=self._fixed_rows is None and len(works) == len(slab.seats),
        )

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self._device)


def _batch_order(work: Work) -> tuple[bool, int, int]:
    """Decoding first, by slab and row; prompts behind, in the order scheduled."""
    if not work.decode:
        return True, 0, 0
    seat = _seat(work)
    return False, id(seat.slab), seat.row


def _seat(work: Work) -> Seat:
    if work.request.seat is None:
        raise EngineError("scheduled work has no KV memory")
    return work.request.seat
