"""Which tokens of which requests the next step computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from art_core.engines.embedded.blocks import Match
from art_core.engines.embedded.cache import KVCache
from art_core.engines.embedded.kv import Seat
from art_core.engines.embedded.request import Request
from art_core.errors import EngineOverloadedError

CHUNK = 64
"""In deterministic mode prompts are computed in pieces that end at multiples of this."""
_WORTH_WAITING_FOR = 16
"""Tokens of KV that another request is just computing."""


@dataclass(frozen=True, slots=True)
class Work:
    """The next ``count`` tokens of a request, in this step."""

    request: Request
    count: int
    decode: bool
    """One token on the batched decoding path, rather than a piece of a prompt."""


@dataclass(slots=True)
class SchedulerCounts:
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    preemptions: int = 0


class Scheduler:
    """First come, first served, under a token budget a step and the KV memory there is.

    A prompt that shares its beginning with one being computed waits for that one's KV.
    When memory runs out, the request admitted last is preempted: its KV goes to the
    prefix cache, and it is admitted again before any other.
    """

    def __init__(
        self, cache: KVCache, *, max_running: int, step_tokens: int, deterministic: bool
    ) -> None:
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.counts = SchedulerCounts()
        self._cache = cache
        self._max_running = max_running
        self._step_tokens = step_tokens
        self._deterministic = deterministic

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def schedule(self) -> list[Work]:
        """Choose the next step's work, oldest requests first; admits and preempts."""
        budget = self._step_tokens
        preemptions = self.counts.preemptions
        works: list[Work] = []
        for request in sorted(self.running, key=lambda r: r.pending > 1):  # decoding first
            if request.seat is None or budget == 0:
                continue  # preempted for an older one, or no budget left
            work = self._next_work(request, budget)
            if self._make_room(request, request.computed + work.count):
                works.append(work)
                budget -= work.count
        if self.counts.preemptions == preemptions:  # else memory is short already
            works += self._admit(budget)
        return [work for work in works if work.request.seat is not None]

    def drop_cancelled(self) -> list[Request]:
        """Free what cancelled requests hold; return them."""
        dropped = [r for r in (*self.running, *self.waiting) if r.client.gone]
        for request in dropped:
            if request.seat is not None:
                self._leave(request)
            else:
                self.waiting.remove(request)
        return dropped

    def finish(self, request: Request) -> None:
        """The request is done: its KV goes to the cache, its memory is free."""
        if not self._deterministic:
            self._store(request)
        self._leave(request)

    def fail(self, request: Request) -> None:
        """The request's KV is worthless and may hold NaN, which no mask stops."""
        if request.seat is not None:
            request.seat.kv.zero_()
            self._leave(request)

    def prompt_computed(self, request: Request) -> None:
        """Make the KV of a whole prompt available to others, and share it if they wait."""
        self._store(request)
        if request.awaited and self._cache.share_trunks:
            request.reseated = True  # behind the same trunk as those that waited
            self._requeue(request)

    def _next_work(self, request: Request, budget: int) -> Work:
        if not self._deterministic:
            return Work(request, min(request.pending, budget), decode=request.pending == 1)
        if not request.in_prompt:  # also after preemption: computed one by one, as at first
            return Work(request, 1, decode=True)
        end = min((request.computed // CHUNK + 1) * CHUNK, request.prompt_length)
        return Work(request, end - request.computed, decode=False)

    def _make_room(self, request: Request, tokens: int) -> bool:
        while request.seat is not None:
            seat = self._cache.make_room(request.adapter, request.seat, tokens)
            if seat is not None:
                request.seat = seat
                return True
            self._preempt(self.running[-1])
        return False

    def _preempt(self, request: Request) -> None:
        self.counts.preemptions += 1
        self._store(request)
        self._requeue(request)

    def _requeue(self, request: Request) -> None:
        self._leave(request)
        request.computed = 0
        self.waiting.appendleft(request)

    def _leave(self, request: Request) -> None:
        if request.seat is not None:
            self._cache.leave(request.adapter, request.seat)
            request.seat = None
            self.running.remove(request)

    def _store(self, request: Request) -> None:
        if request.seat is None:
            return
        known = request.computed
        if self._deterministic:  # only what any other request would compute to the same bits
            known = min(known, request.prompt_length) // CHUNK * CHUNK
        self._cache.store(request.adapter, request.seat, request.tokens[:known])

    def _admit(self, budget: int) -> list[Work]:
        works: list[Work] = []
        chosen = self._choose(budget)
        for i, (request, match) in enumerate(chosen):
            seat = self._cache.seat(request.adapter, match, len(request.tokens))
            if seat is None:
                for _, unused in chosen[i:]:
                    self._cache.release(unused)
                if not self.running:
                    self._refuse(request)
                break
            work = self._start(request, seat, match.length, budget)
            works.append(work)
            budget -= work.count
        return works

    def _start(self, request: Request, seat: Seat, cached: int, budget: int) -> Work:
        request.seat = seat
        request.computed = cached
        self.waiting.remove(request)
        self.running.append(request)
        if len(request.tokens) == request.prompt_length:  # not when admitted again
            self.counts.prompt_tokens += request.prompt_length
            self.counts.cached_prompt_tokens += cached
        return self._next_work(request, budget)

    def _choose(self, budget: int) -> list[tuple[Request, Match]]:
        """Waiting requests to admit, their cached prefixes held.

        All are chosen before any is seated, so that those of one prefix share a trunk.
        """
        chosen: list[tuple[Request, Match]] = []
        leaders = [r for r in self.running if r.in_prompt and r.pending > 1 and not r.reseated]
        # Those behind the head of the queue may overtake the ones that wait for KV.
        for request in islice(self.waiting, 4 * self._max_running):
            if budget <= 0 or len(self.running) + len(chosen) >= self._max_running:
                break
            match = self._match(request)
            if self._should_wait(request, match.length, leaders):
                self._cache.release(match)
                continue
            chosen.append((request, match))
            pending = len(request.tokens) - match.length
            budget -= pending
            if pending > 1 and not request.reseated:
                leaders.append(request)
        return chosen

    def _match(self, request: Request) -> Match:
        tokens = request.tokens[:-1]  # the last one's logits are needed
        if not self._deterministic:
            return self._cache.match(request.adapter, tokens)
        return self._cache.match(request.adapter, tokens[: request.prompt_length], multiple=CHUNK)

    def _should_wait(self, request: Request, cached: int, leaders: Sequence[Request]) -> bool:
        length = cached + (CHUNK if self._deterministic else _WORTH_WAITING_FOR)
        head = request.tokens[:length]
        for leader in leaders:
            if leader.adapter == request.adapter and leader.tokens[:length] == head:
                leader.awaited = True
                return True
        return False

    def _refuse(self, request: Request) -> None:
        request.client.send(
            EngineOverloadedError(
                f"there is no KV memory for a sequence of {len(request.tokens)} tokens",
                "Give the engine more with kv_bytes.",
            )
        )
        request.client.gone = True
