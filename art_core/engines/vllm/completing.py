"""One completion: sampled over HTTP, and gone on with if the server goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from art_core.engines.protocol import Chunk, FinishReason
from art_core.engines.vllm.client import CompletionClient, Interrupted
from art_core.engines.vllm.supervisor import Serving, Supervisor
from art_core.engines.vllm.wire import (
    Piece,
    can_be_rescored,
    completion_body,
    is_restricted,
    read_piece,
    read_scores,
    scoring_body,
)
from art_core.errors import AdapterError, EngineDiedError, EngineError
from art_core.trajectories.sampling import SamplingParams

_PAUSE_SECONDS = 0.5
_MOST_STARTS = 3
"""Server starts that one request may see the end of: it may be what ends them."""
_MOST_TRIES = 20
"""… and attempts at one start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completing:
    """Samples up to ``most`` tokens behind ``prompt`` from what is served as ``model``."""

    client: CompletionClient
    supervisor: Supervisor
    model: str
    prompt: list[int]
    sampling: SamplingParams
    most: int
    can_score: bool
    """Whether this model's server survives scoring a prompt."""

    def chunks(self) -> AsyncGenerator[Chunk]:
        """Raises as `InferenceEngine.generate` does."""
        return self._restricted() if is_restricted(self.sampling) else self._open()

    async def _open(self) -> AsyncGenerator[Chunk]:
        """Stream, and go on behind what was sampled if the server goes away."""
        tokens = list(self.prompt)
        tries = _Tries(self.supervisor)
        while True:
            serving = await self.supervisor.serving()
            done = len(tokens) - len(self.prompt)
            body = completion_body(
                self.model, tokens, self.sampling, max_tokens=self.most - done, done=done
            )
            try:
                events = self.client.stream(serving.url, body)
                async with aclosing(events):
                    async for event in events:
                        self.supervisor.check_open()
                        piece = read_piece(event, self.sampling.top_logprobs)
                        tokens += piece.token_ids
                        reason = _reason(piece)
                        if piece.token_ids or reason:
                            yield _chunk(piece, reason)
                        if reason is not None:
                            return
                raise Interrupted("vLLM ended a stream without a finish_reason")
            except Interrupted as error:
                await tries.again(serving, error)

    async def _restricted(self) -> AsyncGenerator[Chunk]:
        """Sample whole, then put the logprobs of the unrestricted policy in the place of vLLM's."""
        tries = _Tries(self.supervisor)
        while True:
            serving = await self.supervisor.serving()
            try:
                yield await self._sample_and_score(serving)
                return
            except Interrupted as error:
                await tries.again(serving, error)

    async def _sample_and_score(self, serving: Serving) -> Chunk:
        sampling, prompt = self.sampling, self.prompt
        top = sampling.top_logprobs
        body = completion_body(self.model, prompt, sampling, max_tokens=self.most, done=0)
        pieces: list[Piece] = []
        events = self.client.stream(serving.url, body)
        async with aclosing(events):
            async for event in events:
                self.supervisor.check_open()
                pieces.append(read_piece(event, top))
        reason = _reason(pieces[-1]) if pieces else None
        if reason is None:
            raise Interrupted("vLLM ended a stream without a finish_reason")
        tokens = [token for piece in pieces for token in piece.token_ids]
        logprobs = [logprob for piece in pieces for logprob in piece.logprobs]
        tops = [each for piece in pieces for each in piece.top_logprobs]
        # Where a grammar leaves one token, its logprob among what is left is 0.
        forced = [p == 0.0 for p in logprobs] if sampling.grammar is not None else []
        if not (self.can_score and can_be_rescored(sampling)):
            forced = [True] * len(tokens)
        elif tokens:
            whole = [*prompt, *tokens]
            answer = await self.client.whole(serving.url, scoring_body(self.model, whole, top))
            logprobs, tops = read_scores(answer, whole, len(prompt), top)
        return Chunk(
            token_ids=tokens,
            logprobs=logprobs,
            top_logprobs=tops,
            forced=forced,
            finish_reason=reason,
        )


class _Tries:
    """How often a request has been interrupted, and whether to send it again."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._starts: set[int] = set()
        self._tries = 0

    async def again(self, serving: Serving, error: Interrupted) -> None:
        """Wait before the next try.

        Raises:
            EngineDiedError: the servers that this request was sent to all went away.
            EngineError: the same server breaks it off time and again.
        """
        if serving.start not in self._starts:
            self._starts.add(serving.start)
            self._tries = 0
        self._tries += 1
        if len(self._starts) > _MOST_STARTS:
            raise EngineDiedError(
                f"{len(self._starts)} vLLM servers in a row ended while they served one request",
                "Look at server.log in the engine's folder.",
            ) from error
        if self._tries > _MOST_TRIES:
            if isinstance(error, AdapterError):
                raise AdapterError(error.problem) from error
            raise EngineError(error.problem, "Look at the vLLM server's log.") from error
        self._supervisor.suspect()
        await asyncio.sleep(_PAUSE_SECONDS)


def _reason(piece: Piece) -> FinishReason | None:
    """Raises Interrupted: vLLM broke it off."""
    if piece.finish_reason is None or piece.finish_reason == "stop":
        return piece.finish_reason
    if piece.finish_reason == "length":
        return "length"
    raise Interrupted(f"vLLM ended a completion with {piece.finish_reason!r}")


def _chunk(piece: Piece, reason: FinishReason | None) -> Chunk:
    return Chunk(
        token_ids=piece.token_ids,
        logprobs=piece.logprobs,
        top_logprobs=piece.top_logprobs,
        finish_reason=reason,
    )
