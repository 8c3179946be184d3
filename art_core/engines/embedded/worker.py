"""The engine's thread: takes requests in, steps, sends events out."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

import torch

from art_core.engines.embedded.adapters import AdapterStore
from art_core.engines.embedded.cache import KVCache
from art_core.engines.embedded.delivery import Delivery
from art_core.engines.embedded.faults import is_out_of_memory, where_is
from art_core.engines.embedded.request import Request
from art_core.engines.embedded.runner import Runner
from art_core.engines.embedded.sampler import Sampled
from art_core.engines.embedded.scheduler import Scheduler, Work
from art_core.engines.embedded.stats import EngineStats, TokenRate
from art_core.engines.protocol import AdapterRef
from art_core.errors import EngineDiedError, EngineError, EngineOverloadedError

logger = logging.getLogger(__name__)


class Worker(threading.Thread):
    """Owns scheduler and KV memory; everything else talks to it through its inbox."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        runner: Runner,
        cache: KVCache,
        adapters: AdapterStore,
        delivery: Delivery,
        max_waiting: int,
    ) -> None:
        super().__init__(name="art-embedded-engine", daemon=True)
        self._scheduler = scheduler
        self._runner = runner
        self._cache = cache
        self._adapters = adapters
        self._delivery = delivery
        self._max_waiting = max_waiting
        self._wake = threading.Condition()
        self._inbox: deque[Request] = deque()
        self._chores: deque[Callable[[], None]] = deque()
        self._closing = False
        self._death: str | None = None
        self._steps = 0
        self._step_since: float | None = None
        self._rate = TokenRate()

    def submit(self, request: Request) -> None:
        """Queue a request; any thread.

        Raises:
            EngineDiedError: the engine has stopped.
            EngineOverloadedError: the queue is full.
        """
        with self._wake:
            self._check_alive()
            waiting = len(self._inbox) + len(self._scheduler.waiting)
            if waiting >= self._max_waiting:
                raise EngineOverloadedError(
                    f"{waiting} requests are waiting already", "Try again later, or send fewer."
                )
            self._inbox.append(request)
            self._wake.notify()

    def nudge(self) -> None:
        """Something changed outside (a client is gone)."""
        with self._wake:
            self._wake.notify()

    def run_soon(self, chore: Callable[[], None]) -> None:
        """Call ``chore`` on the engine's thread between two steps."""
        with self._wake:
            self._check_alive()
            self._chores.append(chore)
            self._wake.notify()

    def stop(self, patience: float) -> None:
        """Fail what runs, and wait for the thread to end; one that hangs is left behind."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self.join(patience)
        if self.is_alive():
            logger.error("the engine doesn't end and is left behind; it is at\n%s", where_is(self))

    def check_progress(self, limit: float) -> None:
        """Give the engine up if a step has taken more than ``limit`` seconds; any thread.

        Raises:
            EngineDiedError: it hangs, and says where.
        """
        since = self._step_since
        if since is not None and time.monotonic() - since > limit:
            with self._wake:
                self._death = self._death or (
                    f"the engine hangs: a step has taken more than {limit:g} s; it is at\n"
                    f"{where_is(self)}"
                )
        if self._death is not None:
            raise EngineDiedError(self._death, "Start a new one.")

    def stats(self) -> EngineStats:
        counts, tree = self._scheduler.counts, self._cache.tree
        return EngineStats(
            running=len(self._scheduler.running),
            waiting=len(self._inbox) + len(self._scheduler.waiting),
            steps=self._steps,
            sampled_tokens=self._rate.total,
            tokens_per_second=self._rate.per_second(),
            prompt_tokens=counts.prompt_tokens,
            cached_prompt_tokens=counts.cached_prompt_tokens,
            preemptions=counts.preemptions,
            kv_tokens=self._cache.used,
            kv_limit=self._cache.limit,
            cached_blocks=tree.used_blocks,
            cache_blocks=tree.num_blocks,
        )

    def run(self) -> None:
        reason = "the engine was closed"
        try:
            while self._take_in():
                self._step_since = time.monotonic()
                self._step()
                self._step_since = None
                self._delivery.flush()  # refusals
        except Exception as error:  # noqa: BLE001 - whatever it is, every client hears of it
            reason = f"the engine stopped: {type(error).__name__}: {error}"
        self._die(reason)

    def _check_alive(self) -> None:
        if self._closing or self._death is not None:
            raise EngineDiedError(self._death or "the engine was closed", "Start a new one.")

    def _take_in(self) -> bool:
        """Wait for work, move the inbox to the scheduler; False when closing."""
        scheduler = self._scheduler
        with self._wake:
            self._wake.wait_for(
                lambda: (
                    self._closing
                    or self._inbox
                    or self._chores
                    or scheduler.waiting
                    or scheduler.running
                )
            )
            if self._closing:
                return False
            chores = list(self._chores)
            self._chores.clear()
            while self._inbox:
                scheduler.add(self._inbox.popleft())
        for chore in chores:
            chore()
        for request in scheduler.drop_cancelled():
            self._adapters.release(request.adapter)
        return True

    def _step(self) -> None:
        by_adapter: dict[AdapterRef | None, list[Work]] = {}
        for work in self._scheduler.schedule():
            by_adapter.setdefault(work.request.adapter, []).append(work)
        # Versions with requests that still wait for their first token go first.
        for adapter, works in sorted(by_adapter.items(), key=lambda item: _begun(item[1])):
            self._run(adapter, works)
            self._delivery.flush()
        self._steps += 1

    def _run(self, adapter: AdapterRef | None, works: list[Work]) -> None:
        in_prompt = [w.request for w in works if w.request.in_prompt and not w.decode]
        before = [work.request.computed for work in works]
        try:
            results = self._runner.run(self._adapters.model(adapter), works)
        except (RuntimeError, MemoryError) as error:
            untouched = before == [work.request.computed for work in works]
            if not (untouched and is_out_of_memory(error)):
                raise
            problem = str(error)
        else:
            self._take_results(in_prompt, results)
            return
        # Outside of the handler, which holds the failed step's tensors.
        self._run_less(adapter, works, problem)

    def _run_less(self, adapter: AdapterRef | None, works: list[Work], problem: str) -> None:
        """Halve a step that memory didn't suffice for; a request that alone is too much fails."""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if len(works) > 1:
            logger.warning("memory is short: a step of %d requests is halved", len(works))
            half = len(works) // 2
            self._run(adapter, works[:half])
            self._run(adapter, works[half:])
            return
        request = works[0].request
        request.client.send(
            EngineOverloadedError(
                f"out of memory while computing {works[0].count} of {len(request.tokens)} tokens: "
                f"{problem:.200}",
                "Send shorter prompts, or give the engine less with kv_bytes and step_tokens.",
            )
        )
        self._scheduler.fail(request)
        self._adapters.release(adapter)

    def _take_results(
        self, in_prompt: list[Request], results: list[tuple[Request, Sampled]]
    ) -> None:
        failed = {id(request) for request, sampled in results if sampled.token is None}
        for request in in_prompt:
            if not request.in_prompt and id(request) not in failed:
                self._scheduler.prompt_computed(request)
        for request, sampled in results:
            self._handle(request, sampled)

    def _handle(self, request: Request, sampled: Sampled) -> None:
        if sampled.token is None:
            problem = f"the logits of {request.adapter or 'the base model'} aren't finite"
            request.client.send(EngineError(problem, "The adapter is damaged: load another step."))
            self._scheduler.fail(request)
            self._adapters.release(request.adapter)
            return
        self._rate.add(1)
        if request.accept(sampled.token, sampled) is not None:
            self._scheduler.finish(request)
            self._adapters.release(request.adapter)

    def _die(self, reason: str) -> None:
        with self._wake:
            self._death = reason
            left = [*self._scheduler.running, *self._scheduler.waiting, *self._inbox]
        for request in left:
            request.client.send(EngineDiedError(reason, "Start a new one."))
            self._adapters.release(request.adapter)
        self._delivery.flush()


def _begun(works: list[Work]) -> bool:
    return all(len(work.request.tokens) > work.request.prompt_length for work in works)
