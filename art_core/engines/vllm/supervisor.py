"""Keeps a server serving: starts it, watches it, starts it again."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import httpx

from art_core.errors import ArtError, EngineDiedError, EngineError, EngineStartError

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.2
_HEALTH_SECONDS = 2.0
"""Between questions after its health."""
_ANSWER_SECONDS = 10.0
_STRIKES = 6
"""Unanswered in a row, and a server hangs: a busy one may be slow."""
_REFUSALS = 3
"""… or refused."""
_LONGEST_PAUSE = 30.0
_STABLE_SECONDS = 60.0
"""A server that lived so long isn't one that fails to start."""


class Server(Protocol):
    """What is watched."""

    start_timeout: float
    """Seconds from start to the first healthy answer."""
    restarts: bool
    """Whether `start` starts something."""

    @property
    def url(self) -> str: ...

    def start(self) -> None: ...

    def failure(self) -> EngineError | None:
        """Why it has ended, where that can be known without asking it."""
        ...

    def last_error(self) -> str:
        """What it printed last of an exception; may be empty."""
        ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that answers."""

    url: str
    start: int
    """Counts the times it came up."""


class Supervisor:
    """Watches a server in a thread of its own.

    Args:
        prepare: called in that thread with the URL, each time before the server is used,
            and again when a request found something amiss.
        max_restarts: starts in a row that may go wrong after the first.
    """

    def __init__(
        self,
        server: Server,
        prepare: Callable[[str], None],
        *,
        max_restarts: int,
    ) -> None:
        self._server = server
        self._prepare = prepare
        self._max_restarts = max_restarts
        self._client = httpx.Client(timeout=_ANSWER_SECONDS, trust_env=not server.restarts)
        self._lock = threading.Lock()
        self._state: Future[Serving] = Future()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._starts = 0
        self._thread = threading.Thread(
            # In an empty context: it belongs to no rollout.
            target=contextvars.Context().run,
            args=(self._run,),
            name="art-vllm",
            daemon=True,
        )

    def start(self) -> Serving:
        """Returns once the server serves.

        Raises:
            EngineStartError: it doesn't; says why.
        """
        self._thread.start()
        try:
            return self._state.result()
        except BaseException:
            self.stop()
            raise

    async def serving(self) -> Serving:
        """The server, once it answers.

        Raises:
            EngineDiedError: it won't any more.
        """
        # Shielded: one request that is cancelled mustn't cancel what all wait for.
        return await asyncio.shield(asyncio.wrap_future(self._state))

    def wait_serving(self) -> Serving:
        """`serving`, for threads."""
        return self._state.result()

    def wait_for_another(self, serving: Serving) -> None:
        """A server didn't answer: look at it, and give its end time to show."""
        self.suspect()
        deadline = time.monotonic() + _REFUSALS * _HEALTH_SECONDS
        while time.monotonic() < deadline and self._is_current(serving):
            time.sleep(_POLL_SECONDS)

    def suspect(self) -> None:
        """A request failed: look at the server now."""
        self._wake.set()

    def check_open(self) -> None:
        """Raises EngineDiedError: it is being stopped."""
        if self._stopping.is_set():
            raise _closed()

    def stop(self) -> None:
        """Stop watching, and stop the server if it is ours. May be called twice."""
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._server.stop()
        self._client.close()
        self._give_up(_closed())

    def _run(self) -> None:
        failures = 0
        try:
            while not self._stopping.is_set():
                try:
                    serving = self._bring_up()
                except ArtError as error:
                    failures += 1
                    if not self._may_retry(error, failures):
                        self._give_up(error)
                        return
                    continue
                came_up = time.monotonic()
                if serving is None:
                    return
                self._announce(serving)
                why = self._watch(serving)
                if why is None:
                    return
                failures = 0 if time.monotonic() - came_up > _STABLE_SECONDS else failures + 1
                logger.warning("vLLM at %s is gone, waiting for it: %s", serving.url, why)
                self._withdraw()
                if not self._may_retry(why, failures):
                    self._give_up(why)
                    return
        except BaseException as error:
            self._give_up(EngineDiedError(f"the engine's supervisor failed: {error!r}"))
            raise

    def _may_retry(self, error: ArtError, failures: int) -> bool:
        """Pause before the next start; whether there is one."""
        if self._starts == 0 or failures > self._max_restarts:
            return False
        if not self._server.restarts:
            # It has had its time to come back.
            return not isinstance(error, EngineStartError)
        logger.warning("vLLM is started again in a moment: %s", error)
        self._stopping.wait(min(2.0 ** (failures - 1), _LONGEST_PAUSE))
        return not self._stopping.is_set()

    def _bring_up(self) -> Serving | None:
        """Start the server and wait until it is healthy; None: we are stopping."""
        self._server.start()
        deadline = time.monotonic() + self._server.start_timeout
        while not self._stopping.is_set():
            failure = self._server.failure()
            if failure is not None:
                raise failure
            if self._is_healthy() is True:
                self._prepare(self._server.url)
                self._starts += 1
                return Serving(self._server.url, self._starts)
            if time.monotonic() > deadline:
                raise EngineStartError(
                    f"vLLM at {self._server.url} didn't answer within "
                    f"{self._server.start_timeout:.0f} s",
                    "Look at its log; raise start_timeout if it was still loading."
                    if self._server.restarts
                    else "Check the address, and that the server runs.",
                )
            self._stopping.wait(_POLL_SECONDS)
        return None

    def _watch(self, serving: Serving) -> EngineError | None:
        """Until the server is gone: why; None: we are stopping."""
        silent = refused = 0
        asked = time.monotonic()
        while not self._stopping.is_set():
            suspected = self._wake.wait(_POLL_SECONDS)
            self._wake.clear()
            failure = self._server.failure()
            if failure is not None:
                return failure
            now = time.monotonic()
            if not (suspected or refused) and now - asked < _HEALTH_SECONDS:
                continue
            asked = now
            healthy = self._is_healthy()
            silent = silent + 1 if healthy is None else 0
            refused = refused + 1 if healthy is False else 0
            if silent >= _STRIKES or refused >= _REFUSALS:
                said = self._server.last_error()
                return EngineError(
                    f"vLLM at {serving.url} isn't healthy any more" + (f" ({said})" if said else "")
                )
            if suspected and healthy:
                try:
                    self._prepare(serving.url)
                except EngineError as error:
                    return error
        return None

    def _is_healthy(self) -> bool | None:
        """None: no answer in time."""
        try:
            return self._client.get(f"{self._server.url}/health").status_code == 200
        except httpx.TimeoutException:
            return None
        except httpx.HTTPError:
            return False

    def _is_current(self, serving: Serving) -> bool:
        state = self._state
        return state.done() and state.exception() is None and state.result() == serving

    def _announce(self, serving: Serving) -> None:
        with self._lock:
            self._state.set_result(serving)

    def _withdraw(self) -> None:
        with self._lock:
            self._state = Future()

    def _give_up(self, error: ArtError) -> None:
        """Every request from now on fails with this."""
        if self._starts and not isinstance(error, EngineDiedError):
            error = EngineDiedError(
                f"the vLLM engine stopped working: {error.problem}", error.remedy
            )
        with self._lock:
            if self._state.done():
                if self._state.exception() is not None:
                    return  # the first reason is the one that counts
                self._state = Future()
            self._state.set_exception(error)


def _closed() -> EngineDiedError:
    return EngineDiedError("the engine was closed")
