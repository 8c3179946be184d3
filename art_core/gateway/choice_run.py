"""One sampled choice: the engine's tokens, read into a message, kept as a record."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from art_core.chat.protocol import Delta, ParsedMessage, StreamParser
from art_core.engines.protocol import Chunk
from art_core.errors import EngineError
from art_core.gateway.access import Caller
from art_core.gateway.prompts import Prompt
from art_core.trajectories import Completion, CompletionStatus, SamplingParams


@dataclass(slots=True, kw_only=True)
class Piece:
    """Some more of one choice."""

    index: int
    delta: Delta
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    top_logprobs: list[dict[int, float]] = field(default_factory=list[dict[int, float]])


class ChoiceRun:
    """Samples one choice of a call."""

    def __init__(
        self,
        caller: Caller,
        prompt: Prompt,
        sampling: SamplingParams,
        parser: StreamParser,
        *,
        request_id: str,
        index: int,
        sink: Callable[[Piece], None] | None,
        one_call: bool = False,
    ) -> None:
        self.id = choice_id(request_id, index)
        self.index = index
        self.sampling = sampling
        self.token_ids: list[int] = []
        self.logprobs: list[float] = []
        self.top_logprobs: list[dict[int, float]] = []
        self.trainable: list[bool] = []
        self.status = CompletionStatus.ABANDONED  # until it has come to an end
        self._caller = caller
        self._prompt = prompt
        self._parser = parser
        self._request_id = request_id
        self._sink = sink
        self._one_call = one_call
        self._has_called = False
        self._watched = bool(sampling.stop) or one_call
        """It may end before the engine does: looked at token by token."""
        self._engine_finish: str | None = None
        self._parsed: ParsedMessage | None = None
        self._started_at = time.time()

    @property
    def finish_reason(self) -> str:
        """``stop``, ``length`` or ``tool_calls``; else how it failed."""
        if self.status in (CompletionStatus.ABANDONED, CompletionStatus.FAILED):
            return self.status.value
        if self.status is CompletionStatus.TRUNCATED:
            return "length"
        return "tool_calls" if self.parsed.message.get("tool_calls") else "stop"

    @property
    def stopped_by(self) -> str | None:
        """The stop string that ended it."""
        return self._parser.stopped_by

    @property
    def parsed(self) -> ParsedMessage:
        """What was sampled, as a message; to be asked for once the choice has ended."""
        if self._parsed is None:
            if self._sink is None and not self._watched:
                self._parser.feed(self.token_ids)
            rest, self._parsed = self._parser.finish()
            self._emit(Chunk(token_ids=[], logprobs=[]), rest)
        return self._parsed

    def everything(self) -> Piece:
        """All that was sampled, without a delta."""
        return Piece(
            index=self.index,
            delta=Delta(),
            token_ids=self.token_ids,
            logprobs=self.logprobs,
            top_logprobs=self.top_logprobs,
        )

    async def run(self) -> None:
        """Sample to the end. Cancelled or failed, what was sampled is kept."""
        engine = self._caller.policy.engine
        chunks = engine.generate(
            self._prompt.token_ids, self.sampling, adapter=self._caller.adapter
        )
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    self._take(chunk)
                    if self._has_ended:
                        break
            self.status = self._status_at_end()
        except Exception:
            self.status = CompletionStatus.FAILED
            raise

    def _take(self, chunk: Chunk) -> None:
        self._engine_finish = chunk.finish_reason
        if not self._watched:
            self._keep(chunk)
            if self._sink is not None:
                self._emit(chunk, self._parser.feed(chunk.token_ids))
            return
        # One by one, so that the record ends with the token that completes it.
        for position in range(len(chunk.token_ids)):
            token = _part(chunk, position)
            self._keep(token)
            delta = self._parser.feed(token.token_ids)
            self._has_called = self._has_called or bool(delta.tool_calls)
            self._emit(token, delta)
            if self._has_ended:
                return

    @property
    def _has_ended(self) -> bool:
        return self._parser.stopped_by is not None or (self._one_call and self._has_called)

    def _keep(self, chunk: Chunk) -> None:
        self.token_ids += chunk.token_ids
        self.logprobs += chunk.logprobs
        self.top_logprobs += chunk.top_logprobs
        self.trainable += [not forced for forced in chunk.forced] or [True] * len(chunk.token_ids)

    def _emit(self, chunk: Chunk, delta: Delta) -> None:
        if self._sink is not None:
            self._sink(
                Piece(
                    index=self.index,
                    delta=delta,
                    token_ids=chunk.token_ids,
                    logprobs=chunk.logprobs,
                    top_logprobs=chunk.top_logprobs,
                )
            )

    def _status_at_end(self) -> CompletionStatus:
        _ = self.parsed  # the last characters may complete a stop string
        if self._has_ended or self._engine_finish == "stop":
            return CompletionStatus.COMPLETED
        if self._engine_finish == "length":
            return CompletionStatus.TRUNCATED
        raise EngineError(
            f"the engine ended a completion with finish_reason {self._engine_finish!r}",
            "The last chunk must say 'stop' or 'length'.",
        )

    def completion(self) -> Completion:
        """The record of this choice, whatever became of it."""
        parsed = self.parsed
        caller, prompt = self._caller, self._prompt
        return Completion(
            id=self.id,
            request_id=self._request_id,
            rollout_id=None if caller.rollout is None else caller.rollout.id,
            policy=caller.policy.name,
            policy_version=caller.version,
            messages=prompt.messages,
            tools=prompt.tools,
            sampling=self.sampling,
            response=parsed.message,
            prompt_token_ids=prompt.token_ids,
            completion_token_ids=self.token_ids,
            logprobs=self.logprobs,
            trainable=self.trainable,
            finish_reason=self.finish_reason,
            status=self.status,
            tags=dict(caller.tags),
            parse_errors=parsed.errors,
            started_at=self._started_at,
            finished_at=time.time(),
        )


def choice_id(request_id: str, index: int) -> str:
    """The id of a choice's record."""
    return f"{request_id}-{index}"


def _part(chunk: Chunk, position: int) -> Chunk:
    return Chunk(
        token_ids=[chunk.token_ids[position]],
        logprobs=[chunk.logprobs[position]],
        top_logprobs=chunk.top_logprobs[position : position + 1],
        forced=chunk.forced[position : position + 1],
    )
