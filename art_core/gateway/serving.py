"""From a checked request to a call that is being sampled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from art_core.gateway.access import Caller
from art_core.gateway.attempts import Attempt, retry_count
from art_core.gateway.call import Call, ParserOf
from art_core.gateway.http import JsonResponse, abandoned_if_client_leaves
from art_core.gateway.problems import Problem
from art_core.gateway.prompts import Prompt
from art_core.gateway.sampling import seeds
from art_core.trajectories import Completion, SamplingParams

_LONG_BODY = 100_000
"""Bytes; rendered in some 20 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A checked request: what is to be sampled."""

    caller: Caller
    prompt: Prompt
    sampling: SamplingParams
    """Of every choice, but for the seed."""
    seed: int | None
    n: int
    parser_of: ParserOf
    streamed: bool
    one_call: bool = False
    """An answer ends with its first tool call."""


async def ordered(body: bytes, make: Callable[..., Order], *given: Any) -> Order:
    """What ``make(*given)`` makes of a request, in another thread if there is much of it:
    rendering and tokenizing a long conversation takes a while, in which others are served."""
    if len(body) < _LONG_BODY:
        return make(*given)
    return await asyncio.to_thread(make, *given)


async def start_call(request: Request, body: bytes, order: Order) -> Call:
    """Start to sample; an earlier attempt that this request is a retry of is abandoned.

    Raises:
        Problem: the rollout was closed meanwhile.
    """
    rollout = order.caller.rollout
    if rollout is None:
        call = _call(order, occurrence=0)
        call.start()
        return call
    count = retry_count(request.headers)
    body_key = blake2b(request.url.path.encode() + b"\0" + body).digest()
    replaced = rollout.attempts.take_replaced(body_key, count, rollout.conversations.was_continued)
    if replaced is None:
        occurrence = rollout.count_prompt(order.prompt.digest())
    else:
        occurrence = replaced.occurrence
        await replaced.call.withdraw(_replaced())
    call = _call(order, occurrence=occurrence)
    rollout.attempts.add(body_key, Attempt(count, occurrence, call))
    if order.prompt.parent is not None:
        rollout.conversations.continue_(order.prompt.parent)
    call.start()
    return call


def _call(order: Order, *, occurrence: int) -> Call:
    choice_seeds = seeds(
        order.caller.rollout,
        order.seed,
        order.prompt,
        occurrence=occurrence,
        n=order.n,
    )
    samplings = [order.sampling.model_copy(update={"seed": seed}) for seed in choice_seeds]
    return Call(
        order.caller,
        order.prompt,
        samplings,
        order.parser_of,
        streamed=order.streamed,
        one_call=order.one_call,
    )


def _replaced() -> Problem:
    message = "The client sent this request again."
    return Problem(status=409, message=message, code="request_replaced")


async def respond(
    request: Request,
    call: Call,
    whole: Callable[[Sequence[Completion]], dict[str, Any]],
) -> Response:
    """Answer with all of it at once."""
    async with abandoned_if_client_leaves(request.receive, call):
        return JsonResponse(whole(await call.completions()))
