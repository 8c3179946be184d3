# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Each of litellm's functions; reasoning, retries and metadata."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import litellm
import pytest

from art_core.errors import EngineDiedError
from art_core.gateway import GatewayServer
from art_core.rollouts import TrainableModel
from art_core.rollouts.backend import RolloutTicket
from art_core.runs.records import RecordStore
from art_core.trajectories import CompletionStatus
from tests.art_core.gateway.scripted import Bench, Hold, Step, make_chat
from tests.integrations.langgraph.served import records_of

pytestmark = [  # litellm's own
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

Policy = TrainableModel[Any]


def ask(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


async def chat(*, stream: bool, sync: bool) -> str:
    call: dict[str, Any] = {"model": "art/bot", "messages": ask("m1"), "stream": stream}
    answer = await called(litellm.completion, litellm.acompletion, call, sync=sync)
    if not stream:
        return answer.choices[0].message.content
    return "".join([chunk.choices[0].delta.content or "" for chunk in await parts(answer)])


async def text(*, stream: bool, sync: bool) -> str:
    call: dict[str, Any] = {"model": "art/bot", "prompt": "m1", "stream": stream}
    answer = await called(litellm.text_completion, litellm.atext_completion, call, sync=sync)
    if not stream:
        return answer.choices[0].text
    return "".join([chunk.choices[0].text or "" for chunk in await parts(answer)])


async def respond(*, stream: bool, sync: bool) -> str:
    call: dict[str, Any] = {"model": "art/bot", "input": "m1", "stream": stream}
    answer = await called(litellm.responses, litellm.aresponses, call, sync=sync)
    if not stream:
        return answer.output[0].content[0].text
    events = await parts(answer)
    assert events[-1].type == "response.completed"
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    return "".join(deltas)


async def called(of_threads: Any, of_loops: Any, call: dict[str, Any], *, sync: bool) -> Any:
    if not sync:
        return await of_loops(**call)
    if not call["stream"]:
        return await asyncio.to_thread(of_threads, **call)
    # Read in the same thread: a stream is opened by its reader.
    return await asyncio.to_thread(lambda: list(of_threads(**call)))


async def parts(stream: Any) -> list[Any]:
    return stream if isinstance(stream, list) else [part async for part in stream]


@pytest.mark.parametrize("function", [chat, text, respond])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("sync", [False, True])
async def test_each_function(
    function: Callable[..., Awaitable[str]], stream: bool, sync: bool, policy: Policy
) -> None:
    async with policy.rollout() as trajectory:
        assert await function(stream=stream, sync=sync) == "ok m1"
    (record,) = await records_of(policy, trajectory)
    assert record.response["content"] == "ok m1"
    assert record.status is CompletionStatus.COMPLETED


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[Bench]:
    """A policy that thinks: Qwen3's real template, on a gateway of its own."""
    server, records = GatewayServer(), RecordStore(tmp_path / "records.sqlite")
    server.start()
    template = files("trl").joinpath("chat_templates/qwen3.jinja").read_text()
    yield Bench(server, "thinker", make_chat(template), records)
    server.stop()
    records.close()


@pytest.fixture
def ticket(bench: Bench) -> RolloutTicket:
    return bench.server.open_rollout(bench.name, mode="train")


async def think(ticket: RolloutTicket, **more: Any) -> Any:
    return await litellm.acompletion(
        model="art/thinker", messages=ask("hi"), api_base=ticket.base_url, **more
    )


async def whole(answer: Any) -> Any:
    if isinstance(answer, litellm.ModelResponse):
        return answer
    return litellm.stream_chunk_builder([chunk async for chunk in answer])


@pytest.mark.parametrize("stream", [False, True])
async def test_reasoning_is_kept_apart(bench: Bench, ticket: RolloutTicket, stream: bool) -> None:
    bench.say("<think>\nHm.\n</think>\n\nhello")
    answer = await whole(await think(ticket, stream=stream))
    message = answer.choices[0].message
    (record,) = bench.all_records()
    assert (message.reasoning_content, message.content) == ("Hm.", "hello")
    assert record.response["reasoning_content"] == message.reasoning_content
    assert record.response["content"] == message.content


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_is_cut_says_so(
    bench: Bench, ticket: RolloutTicket, stream: bool
) -> None:
    bench.say("hello hello hello")
    answer = await whole(await think(ticket, stream=stream, max_tokens=3))
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 3
    (record,) = bench.all_records()
    assert record.status is CompletionStatus.TRUNCATED


async def test_a_retry_after_a_failure_is_another_record(
    bench: Bench, ticket: RolloutTicket
) -> None:
    steps: list[list[Step]] = [
        [EngineDiedError("out of memory")],
        [bench.spell("hello"), [bench.end]],
    ]
    bench.engine.script = lambda prompt, sampling: steps.pop(0)
    answer = await think(ticket, num_retries=1)
    assert answer.choices[0].message.content == "hello"
    statuses = [record.status for record in bench.all_records()]
    assert statuses == [CompletionStatus.FAILED, CompletionStatus.COMPLETED]


async def test_a_retry_after_a_timeout_abandons_the_attempt(
    bench: Bench, ticket: RolloutTicket
) -> None:
    hold = Hold()
    answer: list[Step] = [bench.spell("hello"), [bench.end]]
    tries: list[list[Step]] = [[hold, *answer], answer]
    bench.engine.script = lambda prompt, sampling: tries.pop(0)
    reply = await think(ticket, num_retries=1, timeout=1)
    assert reply.choices[0].message.content == "hello"
    hold.release()
    closed = bench.server.close_rollout(ticket.rollout_id)
    by_start = sorted(closed, key=lambda record: record.started_at)
    assert [record.status for record in by_start] == [
        CompletionStatus.ABANDONED,
        CompletionStatus.COMPLETED,
    ]


async def test_metadata_and_the_cost_reach_the_apps_callbacks(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    seen = loop.create_future()

    def note(call: dict[str, Any], *_: Any) -> None:  # in a thread, later
        found = (call["litellm_params"]["metadata"]["ticket"], call["response_cost"])
        loop.call_soon_threadsafe(seen.set_result, found)

    monkeypatch.setattr(litellm, "success_callback", [note])
    async with policy.rollout():
        # Asynchronous calls leave this to a worker that is bound to the process's first loop.
        await asyncio.to_thread(
            litellm.completion, model="art/bot", messages=ask("m1"), metadata={"ticket": "t9"}
        )
    assert await asyncio.wait_for(seen, 10) == ("t9", 0)
