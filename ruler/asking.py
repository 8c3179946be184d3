"""Asking a judge model until it gives a usable answer, within limits the user set."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Generic, TypeVar

from pydantic import JsonValue

from art_core.errors import ConfigError, JudgeAnswerError, JudgeUnavailableError
from art_core.rollouts import untraced
from art_core.trajectories import Message
from ruler.answers import AnswerProblem
from ruler.cache import AnswerCache
from ruler.case import digest_of
from ruler.judges.model import JudgeModel, Reply, RetryLater
from ruler.tally import Budget, Tally

T = TypeVar("T")

_SHOWN_OF_A_BAD_ANSWER = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[T]):
    """What to ask, and how to read the answer."""

    messages: Sequence[Message]
    schema: Mapping[str, JsonValue]
    read: Callable[[str], T]
    """Raises `AnswerProblem` for an answer that can't be used."""
    sample: int = 0
    """The same question under another number is answered afresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to bear with a judge."""

    repairs: int = 2
    """Times that an unusable answer is sent back with the reason."""
    retries: int = 5
    """Times that a call is repeated because the server was busy or out of reach."""
    first_wait: float = 1.0
    """Seconds before the first retry; each next wait is twice as long, shortened at random
    by up to half, and never shorter than the server asks for."""
    longest_wait: float = 60.0
    """Seconds; a server that asks for more is given up."""
    timeout: float = 180.0
    """Seconds for one call from start to end, however steadily it trickles."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value >= 0:
                raise ConfigError(f"patience {name} is {value!r}", "It can't be negative.")

    def wait(self, attempt: int, asked: float | None) -> float:
        """Seconds to wait after failed attempt number ``attempt``, counted from 0."""
        grown = min(self.first_wait * 2**attempt, self.longest_wait)
        return max(grown * random.uniform(0.5, 1.0), asked or 0.0)


class Desk:
    """Where questions to judge models are handed in.

    Bounds how many are asked at once, retries, sends bad answers back, counts, and
    remembers accepted answers. Usable from one event loop after another.
    """

    def __init__(
        self,
        *,
        cache: AnswerCache | None = None,
        patience: Patience | None = None,
        budget: Budget | None = None,
        concurrency: int = 8,
    ) -> None:
        if concurrency < 1:
            raise ConfigError(f"concurrency is {concurrency}", "At least 1 call must be allowed.")
        self.spent = Tally()
        """All that was asked at this desk."""
        self._cache = cache
        self._patience = patience or Patience()
        self._budget = budget or Budget()
        self._concurrency = concurrency
        self._gate: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    async def ask(self, model: JudgeModel, question: Question[T], tally: Tally) -> T:
        """The answer, read; what it cost is added to ``tally``.

        Raises:
            JudgeAnswerError: no usable answer after all repairs.
            JudgeUnavailableError: no answer after all retries.
            JudgeSetupError, JudgeError, BudgetSpentError: see there.
        """
        key = _key(model, question)
        kept = None if self._cache is None else self._cache.get(key)
        if kept is not None:
            with contextlib.suppress(AnswerProblem):  # kept by a version that read more leniently
                answer = question.read(kept)
                self._count(tally, Tally(cached=1))
                return answer
        messages = list(question.messages)
        problem = ""
        for _ in range(self._patience.repairs + 1):
            reply = await self._reply(model, messages, question.schema, tally)
            try:
                if reply.problem is not None:
                    raise AnswerProblem(reply.problem)
                answer = question.read(reply.text)
            except AnswerProblem as unusable:
                problem = str(unusable)
                self._count(tally, Tally(unusable_answers=1))
                messages = [*question.messages, *_sent_back(reply.text, problem)]
            else:
                if self._cache is not None:
                    self._cache.put(key, reply.text)
                return answer
        raise JudgeAnswerError(
            f"{model.name} gave no usable answer in {self._patience.repairs + 1} tries; "
            f"the last one: {problem}",
            "Use a stronger judge, or one that takes JSON schemas.",
        )

    async def _reply(
        self,
        model: JudgeModel,
        messages: Sequence[Message],
        schema: Mapping[str, JsonValue],
        tally: Tally,
    ) -> Reply:
        attempt = 0
        async with self._slot():  # kept while waiting, so a busy server gets fewer calls
            while True:
                self._budget.check(self.spent, model.name)
                try:
                    reply = await self._call(model, messages, schema)
                except RetryLater as later:
                    wait = self._patience.wait(attempt, later.after)
                    if attempt == self._patience.retries or wait > self._patience.longest_wait:
                        raise JudgeUnavailableError(
                            f"{later.reason} ({attempt + 1} attempts)",
                            "Check the server, lower concurrency, or raise Patience(retries=…).",
                        ) from later
                    self._count(tally, Tally(retries=1))
                    await asyncio.sleep(wait)
                    attempt += 1
                else:
                    self._count(tally, _use(reply))
                    return reply

    async def _call(
        self, model: JudgeModel, messages: Sequence[Message], schema: Mapping[str, JsonValue]
    ) -> Reply:
        try:
            async with asyncio.timeout(self._patience.timeout):
                with untraced():  # a judge that is asked inside a rollout is no part of it
                    return await model.reply(messages, schema)
        except TimeoutError as error:
            raise RetryLater(
                f"{model.name} took longer than {self._patience.timeout:g} s"
            ) from error

    def _count(self, tally: Tally, more: Tally) -> None:
        tally.add(more)
        self.spent.add(more)

    def _slot(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._gate is None or self._gate[0] is not loop:
            self._gate = (loop, asyncio.Semaphore(self._concurrency))
        return self._gate[1]


def _use(reply: Reply) -> Tally:
    return Tally(
        calls=1,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        cost_usd=reply.cost_usd or 0.0,
        unpriced_calls=int(reply.cost_usd is None),
    )


def _sent_back(answer: str, problem: str) -> list[Message]:
    shown = answer[:_SHOWN_OF_A_BAD_ANSWER].encode("utf-8", "replace").decode()
    return [
        {"role": "assistant", "content": shown or "(nothing)"},
        {
            "role": "user",
            "content": f"That answer can't be used: {problem}. Answer again, the whole of it, "
            "with one JSON object of the form described and nothing else.",
        },
    ]


def _key(model: JudgeModel, question: Question[T]) -> str:
    parts = (dict(model.identity), list(question.messages), dict(question.schema), question.sample)
    return digest_of(json.dumps(part, sort_keys=True) for part in parts)
