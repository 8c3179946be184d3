"""What the whole and streamed answers of all OpenAI-style completions have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from art_core.gateway.call import Call
from art_core.gateway.choice_run import Piece
from art_core.gateway.fields import SamplingFields
from art_core.gateway.http import as_problem, event
from art_core.gateway.logprobs import usage
from art_core.trajectories import COMPLETION_ID_FIELD, Completion

DONE = b"data: [DONE]\n\n"

Choice = dict[str, Any]


class Answer(ABC):
    """A call in the form that its client expects."""

    def __init__(self, fields: SamplingFields, call: Call, *, id_prefix: str, kind: str) -> None:
        self._call = call
        self._chat = call.caller.policy.chat
        self._include_usage = fields.include_usage
        self._return_token_ids = bool(fields.return_token_ids)
        self._prompt_sent = False
        self._head: dict[str, Any] = {
            "id": f"{id_prefix}-{call.id}",
            "object": kind,
            "created": int(time.time()),
            "model": fields.model,
            "policy_version": call.caller.version,
        }

    @abstractmethod
    def _whole_choice(self, completion: Completion, sampled: Piece) -> Choice:
        """All of a choice; its finish reason and ids are added."""

    @abstractmethod
    def _openings(self) -> Iterable[Choice]:
        """What is streamed of each choice before anything is sampled; may be nothing."""

    @abstractmethod
    def _part(self, piece: Piece) -> Choice | None:
        """Some more of a choice, or None if there is nothing to show."""

    @abstractmethod
    def _nothing(self) -> Choice:
        """An empty part: what carries the finish reason in a stream."""

    def whole(self, completions: Sequence[Completion]) -> dict[str, Any]:
        prompt = self._call.prompt.token_ids
        choices = [
            self._whole_choice(completion, run.everything()) | self._ending(index, completion)
            for index, (completion, run) in enumerate(
                zip(completions, self._call.choices, strict=True)
            )
        ]
        answer = {**self._head, "choices": choices, "usage": usage(prompt, completions)}
        if self._return_token_ids:
            answer["prompt_token_ids"] = prompt
            for choice, completion in zip(choices, completions, strict=True):
                choice["token_ids"] = completion.completion_token_ids
        return answer

    async def events(self) -> AsyncIterator[bytes]:
        """The same as server-sent events. The ends come once all choices are recorded."""
        try:
            for run, opening in zip(self._call.choices, self._openings(), strict=False):
                named = opening | {COMPLETION_ID_FIELD: run.id}
                yield self._event([self._unfinished(named, run.index)])
            async for piece in self._call.pieces():
                part = self._part(piece)
                if part is None and self._return_token_ids and piece.token_ids:
                    part = self._nothing()
                if part is not None:
                    yield self._event([self._unfinished(part, piece.index, piece.token_ids)])
            completions = await self._call.completions()
        except Exception as error:  # noqa: BLE001  (becomes an event that clients raise)
            yield event(as_problem(error).body())
            return
        for index, completion in enumerate(completions):
            yield self._event([self._nothing() | self._ending(index, completion)])
        if self._include_usage:
            yield self._event([], usage=usage(self._call.prompt.token_ids, completions))
        yield DONE

    def _event(self, choices: list[Choice], **more: Any) -> bytes:
        fields = {**self._head, "choices": choices, **more}
        if self._return_token_ids and not self._prompt_sent:
            fields["prompt_token_ids"] = self._call.prompt.token_ids
            self._prompt_sent = True
        return event(fields)

    def _unfinished(self, choice: Choice, index: int, token_ids: Sequence[int] = ()) -> Choice:
        choice |= {"index": index, "finish_reason": None}
        if self._return_token_ids:
            choice["token_ids"] = list(token_ids)
        return choice

    def _ending(self, index: int, completion: Completion) -> Choice:
        return {
            "index": index,
            "finish_reason": completion.finish_reason,
            COMPLETION_ID_FIELD: completion.id,
        }
