"""One request in flight: its choices are sampled together and recorded together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from uuid import uuid4

from art_core.chat.protocol import Delta, StreamParser
from art_core.errors import (
    AdapterError,
    ContextLengthError,
    EngineDiedError,
    EngineOverloadedError,
    GrammarError,
)
from art_core.gateway.access import Caller, rollout_not_open
from art_core.gateway.attempts import Outcome
from art_core.gateway.choice_run import ChoiceRun, Piece, choice_id
from art_core.gateway.problems import Problem
from art_core.gateway.prompts import Prompt
from art_core.runs.records import Record
from art_core.trajectories import Completion, CompletionStatus, SamplingParams

ParserOf = Callable[[str, SamplingParams], StreamParser]
"""Makes the parser of a choice, given its id and sampling parameters."""

_REFUSALS = (ContextLengthError, EngineOverloadedError, AdapterError, GrammarError)
"""The engine didn't begin: there is nothing to record."""


class Call:
    """Samples ``n`` choices of one prompt, in tasks of its own.

    A call ends in one of three ways: all choices come to their end and are recorded
    so; the call is abandoned and all of them are recorded as that; or one fails, and
    the others are abandoned. A record is safe before anybody is told of its end.
    """

    def __init__(
        self,
        caller: Caller,
        prompt: Prompt,
        samplings: Sequence[SamplingParams],
        parser_of: ParserOf,
        *,
        streamed: bool,
        one_call: bool = False,
    ) -> None:
        self.id = uuid4().hex
        self.caller = caller
        self.prompt = prompt
        self.choices = [
            ChoiceRun(
                caller,
                prompt,
                sampling,
                parser_of(choice_id(self.id, index), sampling),
                request_id=self.id,
                index=index,
                sink=self._push if streamed else None,
                one_call=one_call,
            )
            for index, sampling in enumerate(samplings)
        ]
        self._runs: list[asyncio.Task[None]] = []
        self._abandoned: Problem | None = None
        self._pieces: list[Piece] = []
        self._news = asyncio.Event()
        self._ended = False
        self._task: asyncio.Task[list[Completion]] | None = None
        self.outcome = Outcome.RUNNING
        self.answer: list[Completion] = []
        """What it was answered with."""

    def start(self) -> None:
        """Begin to sample.

        Raises:
            Problem: the rollout was closed meanwhile.
        """
        rollout = self.caller.rollout
        if rollout is not None:
            if rollout.closed:
                raise rollout_not_open(rollout.id)
            rollout.calls.add(self)
        self.caller.policy.calls.add(self)
        self._runs = [asyncio.create_task(choice.run()) for choice in self.choices]
        self._task = asyncio.create_task(self._supervise())
        # Somebody may have to be the first to look, when the client is gone.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    def abandon(self, reason: Problem) -> None:
        """Stop sampling; nothing of it will be trained on. No effect on a call that has ended."""
        if not self._ended and self._abandoned is None:
            self._abandoned = reason
            for run in self._runs:
                run.cancel()

    async def withdraw(self, reason: Problem) -> None:
        """Abandon the call, even if it has been answered."""
        self.abandon(reason)
        if self.outcome is Outcome.ANSWERED:
            await self._mark_abandoned(self.answer)
            self.outcome, self.answer = Outcome.HUNG_UP, []

    async def completions(self) -> list[Completion]:
        """The records of all choices, once they are safe.

        Raises:
            Problem: the call was abandoned.
            ArtError: the engine or the record store failed.
        """
        # Shielded: what was sampled is recorded, even if who asked is cancelled.
        return await asyncio.shield(self._running())

    async def ended(self) -> BaseException | None:
        """Wait for the end; what `completions` raises, if anything."""
        await asyncio.wait([self._running()])
        return self._running().exception()

    async def first_news(self) -> None:
        """Wait for the first piece. Raises as `completions` does if there is none."""
        await self._news.wait()
        if self._ended and not self._pieces:
            await self.completions()

    async def pieces(self) -> AsyncIterator[Piece]:
        """What is sampled, as it comes; pieces that have to wait are joined."""
        while not (self._ended and not self._pieces):
            await self._news.wait()
            self._news.clear()
            waiting, self._pieces = self._pieces, []
            for piece in _joined(waiting):
                yield piece

    def _running(self) -> asyncio.Task[list[Completion]]:
        if self._task is None:
            raise RuntimeError("the call hasn't been started")
        return self._task

    def _push(self, piece: Piece) -> None:
        if piece.delta or piece.token_ids:
            self._pieces.append(piece)
            self._news.set()

    async def _supervise(self) -> list[Completion]:
        try:
            error = await self._sample()
            completions = await self._record(error)
            if self._abandoned is not None:
                self.outcome = Outcome.HUNG_UP
                raise self._abandoned
            if error is not None:
                raise error
            self.outcome, self.answer = Outcome.ANSWERED, completions
            return completions
        finally:
            if self.outcome is Outcome.RUNNING:
                self.outcome = Outcome.REFUSED
            self._ended = True
            self._news.set()
            self.caller.policy.calls.discard(self)
            if self.caller.rollout is not None:
                self.caller.rollout.calls.discard(self)

    async def _sample(self) -> BaseException | None:
        """Run all choices to their end, or until one fails; returns its error."""
        _, pending = await asyncio.wait(self._runs, return_when=asyncio.FIRST_EXCEPTION)
        if pending:
            for run in pending:
                run.cancel()
            await asyncio.wait(pending)
        errors = [run.exception() for run in self._runs if not run.cancelled()]
        error = next((each for each in errors if each is not None), None)
        if isinstance(error, EngineDiedError):
            self.caller.policy.engine_error = str(error)
        return error

    async def _record(self, error: BaseException | None) -> list[Completion]:
        choices = self.choices
        if isinstance(error, _REFUSALS):
            choices = [choice for choice in choices if choice.token_ids]
        if self._abandoned is not None or error is not None:
            for choice in choices:
                if choice.status is not CompletionStatus.FAILED:
                    choice.status = CompletionStatus.ABANDONED
        completions = [choice.completion() for choice in choices]
        store = self.caller.policy.records
        was_abandoned = self._abandoned is not None
        if completions:
            records = [Record(each, self.prompt.parent) for each in completions]
            await asyncio.wrap_future(store.submit(records))
        if self.caller.rollout is None:
            self.caller.policy.quarantined += len(completions)
        else:
            self.caller.rollout.record(completions, raw=self.prompt.raw)
        if self._abandoned is not None and not was_abandoned:  # while they were written
            await self._mark_abandoned(completions)
        return completions

    async def _mark_abandoned(self, completions: Sequence[Completion]) -> None:
        store, rollout = self.caller.policy.records, self.caller.rollout
        await asyncio.wrap_future(store.abandon([each.id for each in completions]))
        if rollout is not None:
            change = {"status": CompletionStatus.ABANDONED}
            changed = [each.model_copy(update=change) for each in completions]
            rollout.record(changed, raw=self.prompt.raw)


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces of each choice as one."""
    if len(pieces) < 2:
        return list(pieces)
    by_choice: dict[int, list[Piece]] = {}
    for piece in pieces:
        by_choice.setdefault(piece.index, []).append(piece)
    return [
        Piece(
            index=index,
            delta=Delta(
                content="".join(each.delta.content for each in parts),
                reasoning="".join(each.delta.reasoning for each in parts),
                tool_calls=[call for each in parts for call in each.delta.tool_calls],
            ),
            token_ids=[token for each in parts for token in each.token_ids],
            logprobs=[logprob for each in parts for logprob in each.logprobs],
            top_logprobs=[tops for each in parts for tops in each.top_logprobs],
        )
        for index, parts in by_choice.items()
    ]
