"""Clients that leave, rollouts that close and gateways that stop while a call is sampled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest

from art_core.chat import ChatFormat
from art_core.errors import GatewayError, PortTakenError
from art_core.gateway import GatewayServer
from art_core.rollouts.backend import RolloutTicket
from art_core.runs.records import RecordStore
from art_core.trajectories import CompletionStatus, build_histories
from tests.art_core.gateway.scripted import Bench, Hold, ask, ask_streaming, eventually, user

CHAT = {"model": "m", "messages": [user("hi")]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("sampled", ["", "some"])
def test_hanging_up_cancels_the_engine_and_is_recorded(
    bench: Bench, ticket: RolloutTicket, stream: bool, sampled: str
) -> None:
    hold = Hold()
    bench.do(*[[token] for token in bench.spell(sampled)], hold, bench.spell(" never"), [bench.end])
    impatient = httpx.Timeout(10, read=0.2)
    with httpx.Client(timeout=impatient) as http, pytest.raises(httpx.ReadTimeout):
        http.post(f"{ticket.base_url}/chat/completions", json={**CHAT, "stream": stream})
    eventually(lambda: bench.engine.served[0].ending == "cancelled")
    eventually(lambda: len(bench.all_records()) == 1)
    (record,) = bench.server.close_rollout(ticket.rollout_id)
    assert record.status is CompletionStatus.ABANDONED
    assert record.finish_reason == "abandoned"
    assert record.completion_token_ids == bench.spell(sampled)
    assert record.response["content"] == sampled
    assert build_histories([record]) == []


def test_leaving_a_stream_early(bench: Bench, client: openai.OpenAI) -> None:
    hold = Hold()
    bench.do(bench.spell("first"), hold, bench.spell(" second"), [bench.end])
    with client.chat.completions.create(model="m", messages=[user("hi")], stream=True) as stream:
        for chunk in stream:
            if chunk.choices[0].delta.content:
                break
    eventually(lambda: bench.engine.served[0].ending == "cancelled")
    eventually(lambda: len(bench.all_records()) == 1)
    (record,) = bench.all_records()
    assert record.status is CompletionStatus.ABANDONED
    assert record.completion_token_ids == bench.spell("first")


def test_leaving_after_the_finish_reason_is_no_hang_up(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("hello")
    with client.chat.completions.create(model="m", messages=[user("hi")], stream=True) as stream:
        for chunk in stream:
            if chunk.choices[0].finish_reason:
                break
    (record,) = bench.all_records()
    assert record.status is CompletionStatus.COMPLETED


def test_choices_that_had_ended_are_abandoned_with_the_rest(
    bench: Bench, ticket: RolloutTicket
) -> None:
    hold = Hold()
    answers = iter([[bench.spell("done"), [bench.end]], [hold, [bench.end]]])
    bench.engine.script = lambda prompt, sampling: next(answers)
    with (
        httpx.Client(timeout=httpx.Timeout(10, read=0.2)) as http,
        pytest.raises(httpx.ReadTimeout),
    ):
        http.post(f"{ticket.base_url}/chat/completions", json={**CHAT, "n": 2})
    eventually(lambda: len(bench.all_records()) == 2)
    assert {r.status for r in bench.all_records()} == {CompletionStatus.ABANDONED}


def in_flight(call: Callable[[], object]) -> Future[object]:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return future


@pytest.mark.parametrize("stream", [False, True])
def test_closing_a_rollout_abandons_its_calls(
    bench: Bench, client: openai.OpenAI, ticket: RolloutTicket, stream: bool
) -> None:
    hold = Hold()
    bench.do(bench.spell("some"), hold, [bench.end])
    call = in_flight(lambda: (ask_streaming if stream else ask)(client))
    hold.wait_until_reached()
    (record,) = bench.server.close_rollout(ticket.rollout_id)
    assert record.status is CompletionStatus.ABANDONED
    assert record.completion_token_ids == bench.spell("some")
    with pytest.raises(openai.APIError, match="is not open: it was closed"):
        call.result(timeout=10)
    assert bench.records.by_rollout(ticket.rollout_id) == [record]
    with pytest.raises(GatewayError, match="isn't open"):
        bench.server.close_rollout(ticket.rollout_id)


async def test_closing_from_an_event_loop(bench: Bench, ticket: RolloutTicket) -> None:
    bench.say("x")
    async with openai.AsyncOpenAI(base_url=ticket.base_url, api_key="any") as client:
        await client.chat.completions.create(model="m", messages=[user("hi")])
    (record,) = await bench.server.aclose_rollout(ticket.rollout_id)
    assert record.status is CompletionStatus.COMPLETED


def test_a_synchronous_agent_cannot_block_the_gateway(bench: Bench) -> None:
    """An agent that blocks the event loop it runs in still gets its answer."""
    bench.say("x")

    async def agent() -> str | None:
        ticket = bench.server.open_rollout(bench.name, mode="train")
        with openai.OpenAI(base_url=ticket.base_url, api_key="any") as client:
            content = ask(client).choices[0].message.content
        bench.server.close_rollout(ticket.rollout_id)
        return content

    assert asyncio.run(agent()) == "x"


@pytest.fixture
def alone(tmp_path: Path, plain_chat: ChatFormat) -> Bench:
    """A policy on a gateway that the test stops itself."""
    server = GatewayServer()
    server.start()
    return Bench(server, "bot", plain_chat, RecordStore(tmp_path / "alone.sqlite"))


@pytest.mark.parametrize("attributed", [True, False])
def test_stopping_records_what_was_in_flight_and_leaves_nothing_running(
    alone: Bench, attributed: bool
) -> None:
    threads = set(threading.enumerate())
    hold = Hold()
    alone.do(alone.spell("some"), hold, [alone.end])
    ticket = alone.server.open_rollout("bot", mode="train")
    base = ticket.base_url if attributed else f"{alone.server.url}/v1"
    url = alone.server.url
    client = openai.OpenAI(base_url=base, api_key="x", max_retries=0)
    call = in_flight(lambda: ask(client, model="bot"))
    hold.wait_until_reached()
    alone.server.stop()
    alone.server.stop()
    with pytest.raises(openai.InternalServerError, match="shutting down"):
        call.result(timeout=10)
    (record,) = alone.all_records()
    assert record.status is CompletionStatus.ABANDONED
    assert alone.engine.served[0].ending == "cancelled"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")
    with pytest.raises(GatewayError, match="isn't running"):
        alone.server.open_rollout("bot", mode="train")
    client.close()
    alone.records.close()
    left = [t for t in threading.enumerate() if t.name == "art-gateway" and t not in threads]
    assert left == []


def test_a_gateway_can_be_started_again(alone: Bench) -> None:
    alone.say("x")
    with pytest.raises(GatewayError, match="already running"):
        alone.server.start()
    alone.server.stop()
    alone.server.start()
    ticket = alone.server.open_rollout("bot", mode="train")
    with openai.OpenAI(base_url=ticket.base_url, api_key="x") as client:
        assert ask(client).choices[0].message.content == "x"
    alone.server.stop()
    alone.records.close()


def test_a_taken_port(gateway: GatewayServer) -> None:
    port = int(gateway.url.rpartition(":")[2])
    with pytest.raises(PortTakenError, match=f"port {port} on 127.0.0.1 is taken") as caught:
        GatewayServer(port=port).start()
    assert "choose another port" in str(caught.value)
