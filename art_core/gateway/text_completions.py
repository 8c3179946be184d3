"""``/v1/completions``: the model goes on with a text or with tokens, no chat template."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, field_validator
from starlette.requests import Request
from starlette.responses import Response

from art_core.gateway.access import Caller, Door
from art_core.gateway.answers import Answer, Choice
from art_core.gateway.bodies import Bodies
from art_core.gateway.call import Call
from art_core.gateway.choice_run import Piece
from art_core.gateway.fields import SamplingFields, read_fields
from art_core.gateway.http import EventStream
from art_core.gateway.logprobs import text_logprobs
from art_core.gateway.policy import Policy
from art_core.gateway.prompts import Prompt
from art_core.gateway.rollout import OpenRollout
from art_core.gateway.sampling import check_tokens, sampling_of
from art_core.gateway.serving import Order, ordered, respond, start_call
from art_core.trajectories import Completion

_UNCHANGING: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
}


class TextFields(SamplingFields):
    """A text completion request, of one prompt."""

    prompt: str | Annotated[list[Annotated[int, Field(ge=0, lt=2**32)]], Field(min_length=1)]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @field_validator("prompt", mode="wrap")
    @classmethod
    def _one_prompt(cls, prompt: object, check: ValidatorFunctionWrapHandler) -> str | list[int]:
        try:
            return check(prompt)
        except ValidationError as error:
            raise ValueError(
                "a string or a list of token ids is needed; send several prompts one by one"
            ) from error


class TextCompletions:
    """The endpoint."""

    def __init__(self, door: Door, bodies: Bodies) -> None:
        self._door = door
        self._bodies = bodies

    async def __call__(self, request: Request) -> Response:
        body = await self._bodies.read(request)
        fields = read_fields(TextFields, body, _UNCHANGING)
        caller = self._door.caller(request, fields.model)
        order = await ordered(body, _order, fields, caller)
        call = await start_call(request, body, order)
        answer = _Answer(fields, call)
        if fields.stream:
            return EventStream(call, answer.events())
        return await respond(request, call, answer.whole)


def _order(fields: TextFields, caller: Caller) -> Order:
    chat, rollout = caller.policy.chat, caller.rollout
    return Order(
        caller=caller,
        prompt=_prompt(caller.policy, fields.prompt, rollout),
        sampling=sampling_of(
            fields,
            caller,
            max_tokens=fields.max_tokens,
            top_logprobs=fields.logprobs or 0,
        ),
        seed=fields.seed,
        n=fields.n or 1,
        parser_of=lambda _, sampling: chat.text_parser(stop=sampling.stop),
        streamed=bool(fields.stream),
    )


def _prompt(policy: Policy, prompt: str | list[int], rollout: OpenRollout | None) -> Prompt:
    """The prompt's tokens; a text that goes on from a recorded one keeps its tokens.

    The record has the prompt as a user message, to read.
    """
    chat = policy.chat
    if isinstance(prompt, list):
        check_tokens("prompt", prompt, policy)
        text = chat.decode(prompt)
        return Prompt(token_ids=prompt, messages=[{"role": "user", "content": text}], raw=True)
    found = None if rollout is None else rollout.texts.find(prompt)
    parent, rest = (None, prompt) if found is None else found
    recorded = [] if parent is None else parent.prompt_token_ids + parent.completion_token_ids
    return Prompt(
        token_ids=recorded + chat.encode(rest),
        messages=[{"role": "user", "content": prompt}],
        parent=parent,
        raw=True,
    )


class _Answer(Answer):
    """A call as a text completion."""

    def __init__(self, fields: TextFields, call: Call) -> None:
        super().__init__(fields, call, id_prefix="cmpl", kind="text_completion")
        self._wants_logprobs = fields.logprobs is not None
        self._sent = [0] * len(call.choices)
        """Characters of each choice's tokens that have been sent."""

    def _whole_choice(self, completion: Completion, sampled: Piece) -> Choice:
        choice: Choice = {
            "text": completion.response["content"],
            "logprobs": self._logprobs(sampled),
        }
        if self._return_token_ids:  # here and not beside the choices, as vLLM has it
            choice["prompt_token_ids"] = completion.prompt_token_ids
        return choice

    def _openings(self) -> Iterable[Choice]:
        return ()

    def _part(self, piece: Piece) -> Choice | None:
        if not piece.delta and not (self._wants_logprobs and piece.token_ids):
            return None
        return {"text": piece.delta.content, "logprobs": self._logprobs(piece)}

    def _nothing(self) -> Choice:
        return {"text": "", "logprobs": None}

    def _logprobs(self, sampled: Piece) -> dict[str, Any] | None:
        if not self._wants_logprobs:
            return None
        logprobs = text_logprobs(self._chat, sampled, offset=self._sent[sampled.index])
        self._sent[sampled.index] += sum(len(token) for token in logprobs["tokens"])
        return logprobs
