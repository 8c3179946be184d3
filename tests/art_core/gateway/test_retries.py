"""Requests sent again: the attempt before is abandoned, and only that one."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai
import pytest

from art_core.errors import EngineOverloadedError
from art_core.rollouts.backend import RolloutTicket
from art_core.trajectories import CompletionStatus
from tests.art_core.gateway.scripted import Bench, Hold, Step, ask, eventually, extra, user

COMPLETED, ABANDONED = CompletionStatus.COMPLETED, CompletionStatus.ABANDONED


def send(
    http: httpx.Client, ticket: RolloutTicket, count: int, text: str = "hi", **more: Any
) -> httpx.Response:
    return http.post(
        f"{ticket.base_url}/chat/completions",
        json={"model": "m", "messages": [user(text)], **more},
        headers={"x-stainless-retry-count": str(count)},
    )


def statuses(bench: Bench, ticket: RolloutTicket) -> list[CompletionStatus]:
    stored = bench.records.by_rollout(ticket.rollout_id)
    known = bench.server.close_rollout(ticket.rollout_id)
    assert {each.id: each.status for each in stored} == {each.id: each.status for each in known}
    return [each.status for each in sorted(known, key=lambda each: each.started_at)]


def test_an_answer_that_was_asked_for_again_is_abandoned(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket
) -> None:
    bench.say("x")
    for count in range(3):
        assert send(http, ticket, count).status_code == 200
    assert statuses(bench, ticket) == [ABANDONED, ABANDONED, COMPLETED]


def test_a_retry_samples_with_the_seed_of_the_first_attempt(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket
) -> None:
    bench.say("x")
    send(http, ticket, 0)
    send(http, ticket, 1)
    send(http, ticket, 0)
    first, retry, other = (served.sampling.seed for served in bench.engine.served)
    assert first == retry != other


def test_equal_calls_that_are_no_retries_are_all_kept(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket
) -> None:
    bench.say("x")
    for _ in range(3):
        send(http, ticket, 0)
    assert statuses(bench, ticket) == [COMPLETED] * 3


def test_a_retry_of_another_body_or_rollout_abandons_nothing(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket
) -> None:
    bench.say("x")
    other = bench.server.open_rollout(bench.name, mode="train")
    send(http, ticket, 0)
    send(http, ticket, 1, "something else")
    send(http, other, 1)
    assert statuses(bench, ticket) == [COMPLETED] * 2
    assert statuses(bench, other) == [COMPLETED]


def test_the_attempt_that_hung_up_is_the_one_replaced(bench: Bench, ticket: RolloutTicket) -> None:
    """Two equal calls at once; one times out and comes again: the other's answer is kept."""
    hold = Hold()
    scripts: list[list[Step]] = [[[bench.end]], [hold, [bench.end]], [[bench.end]]]
    bench.engine.script = lambda prompt, sampling: scripts.pop(0)
    with httpx.Client(timeout=httpx.Timeout(10, read=0.3)) as http:
        send(http, ticket, 0)
        with pytest.raises(httpx.ReadTimeout):
            send(http, ticket, 0)
        eventually(lambda: len(bench.all_records()) == 2)
        send(http, ticket, 1)
    assert statuses(bench, ticket) == [COMPLETED, ABANDONED, COMPLETED]


def test_an_attempt_that_still_runs_is_stopped(bench: Bench, ticket: RolloutTicket) -> None:
    hold = Hold()
    scripts: list[list[Step]] = [[hold, [bench.end]], [[bench.end]]]
    bench.engine.script = lambda prompt, sampling: scripts.pop(0)

    async def impatient() -> list[int | str]:
        async with httpx.AsyncClient(timeout=10) as http:
            url, body = f"{ticket.base_url}/chat/completions", {"model": "m"}
            first = asyncio.create_task(http.post(url, json={**body, "messages": [user("hi")]}))
            await asyncio.to_thread(hold.wait_until_reached)
            retry = await http.post(
                url,
                json={**body, "messages": [user("hi")]},
                headers={"x-stainless-retry-count": "1"},
            )
            replaced = await first
        return [retry.status_code, replaced.status_code, replaced.json()["error"]["code"]]

    assert asyncio.run(impatient()) == [200, 409, "request_replaced"]
    assert bench.engine.served[0].ending == "cancelled"
    assert statuses(bench, ticket) == [ABANDONED, COMPLETED]


def test_a_refused_attempt_is_replaced_before_an_answered_one(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket
) -> None:
    scripts: list[list[Step]] = [[[bench.end]], [EngineOverloadedError("full")], [[bench.end]]]
    bench.engine.script = lambda prompt, sampling: scripts.pop(0)
    assert [send(http, ticket, count).status_code for count in (0, 0, 1)] == [200, 429, 200]
    assert statuses(bench, ticket) == [COMPLETED, COMPLETED]


def test_an_answer_that_was_acted_on_is_not_abandoned(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket
) -> None:
    bench.say("x")
    message = send(http, ticket, 0).json()["choices"][0]["message"]
    send(http, ticket, 0, messages=[user("hi"), message, user("go on")])
    send(http, ticket, 1)
    assert statuses(bench, ticket) == [COMPLETED] * 3


def test_an_abandoned_answer_is_not_gone_on_from(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket
) -> None:
    """Both attempts answer "he", in other tokens."""
    spellings = [[*bench.spell("h"), *bench.spell("e"), bench.end], [*bench.spell("he"), bench.end]]
    scripts: list[list[Step]] = [[spelling] for spelling in spellings]
    bench.engine.script = lambda prompt, sampling: scripts.pop(0) if scripts else [[bench.end]]
    message = send(http, ticket, 0).json()["choices"][0]["message"]
    send(http, ticket, 1)
    send(http, ticket, 0, messages=[user("hi"), message, user("go on")])
    _, kept, last = bench.engine.served
    assert kept.token_ids == spellings[1]
    recorded = kept.prompt + kept.token_ids
    assert last.prompt[: len(recorded)] == recorded


def test_the_clients_own_retries(bench: Bench, ticket: RolloutTicket) -> None:
    """The openai client times out twice and gets its answer at the third attempt."""
    hold = Hold()
    scripts: list[list[Step]] = [
        [bench.spell("a"), hold],
        [bench.spell("b"), hold],
        [bench.spell("c"), [bench.end]],
    ]
    bench.engine.script = lambda prompt, sampling: scripts.pop(0)
    with openai.OpenAI(
        base_url=ticket.base_url, api_key="any", timeout=0.3, max_retries=2
    ) as client:
        choice = ask(client).choices[0]
    assert choice.message.content == "c"
    eventually(lambda: len(bench.all_records()) == 3)
    assert bench.record_of(extra(choice, "completion_id")).status is COMPLETED
    assert statuses(bench, ticket) == [ABANDONED, ABANDONED, COMPLETED]


def test_a_retry_count_that_is_no_number(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket
) -> None:
    bench.say("x")
    response = http.post(
        f"{ticket.base_url}/chat/completions",
        json={"model": "m", "messages": [user("hi")]},
        headers={"x-stainless-retry-count": "many"},
    )
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "x-stainless-retry-count"
