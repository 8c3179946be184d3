"""Anthropic's ``/v1/messages`` through its own client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

pytest.importorskip("anthropic", reason="Anthropic's client is not among the dependencies")

import anthropic

from art_core.chat import ChatFormat
from art_core.errors import EngineDiedError, EngineOverloadedError
from art_core.rollouts.backend import RolloutTicket
from art_core.trajectories import CompletionStatus, build_histories
from tests.art_core.gateway.scripted import Bench, Hold, Served, eventually

TOOL: Any = {
    "name": "look",
    "description": "Look somewhere",
    "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}},
}
CALLS = (
    'I look.\n<tool_call>\n{"name": "look", "arguments": {"at":"s\\u0065a", "n": 1.0}}\n'
    '</tool_call>\n<tool_call>\n{"arguments": {}, "name": "look"}\n</tool_call>'
)
HI: Any = {"role": "user", "content": "hi"}


def client_of(bench: Bench) -> anthropic.Anthropic:
    ticket = bench.server.open_rollout(bench.name, mode="train")
    base = ticket.base_url.removesuffix("/v1")
    return anthropic.Anthropic(base_url=base, api_key=ticket.api_key, max_retries=0)


@pytest.fixture
def claude(bench: Bench) -> Iterator[anthropic.Anthropic]:
    with client_of(bench) as client:
        yield client


@pytest.fixture
def claude_with_tools(tool_bench: Bench) -> Iterator[anthropic.Anthropic]:
    with client_of(tool_bench) as client:
        yield client


def say(client: anthropic.Anthropic, *messages: Any, **more: Any) -> Any:
    create: Any = client.messages.create
    asked = {"model": "claude", "max_tokens": 1000, "messages": messages or [HI], **more}
    return create(**asked)


def say_streaming(client: anthropic.Anthropic, *messages: Any, **more: Any) -> Any:
    """The message that the client library puts together from the events."""
    stream: Any = client.messages.stream
    asked = {"model": "claude", "max_tokens": 1000, "messages": messages or [HI], **more}
    with stream(**asked) as events:
        return events.get_final_message()


SAY = {"whole": say, "streamed": say_streaming}


def goes_on_from(later: Served, earlier: Served) -> bool:
    recorded = earlier.prompt + earlier.token_ids
    return later.prompt[: len(recorded)] == recorded


def test_a_whole_message(bench: Bench, claude: anthropic.Anthropic) -> None:
    bench.say("hello there")
    message = say(claude, system="Be brief.", extra_body={"temperature": 0, "top_k": 5})
    assert (message.role, message.type, message.model) == ("assistant", "message", "claude")
    assert [(block.type, block.text) for block in message.content] == [("text", "hello there")]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.output_tokens == len(bench.engine.served[0].token_ids)
    record = bench.record_of(message.completion_id)
    assert record.messages == [{"role": "system", "content": "Be brief."}, HI]
    assert bench.engine.served[0].prompt == bench.chat.render(record.messages)


def test_a_streamed_message(bench: Bench, claude: anthropic.Anthropic) -> None:
    bench.say("hello ☃")
    with claude.messages.stream(model="claude", max_tokens=100, messages=[HI]) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text == "hello ☃"
    assert [block.type for block in message.content] == ["text"]
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens == len(bench.engine.served[0].token_ids)
    (record,) = bench.all_records()
    assert record.response["content"] == "hello ☃"


@pytest.mark.parametrize("way", SAY)
def test_stop_sequences_and_limits(bench: Bench, claude: anthropic.Anthropic, way: str) -> None:
    bench.say("one STOP two")
    stopped = SAY[way](claude, stop_sequences=["STOP"])
    limited = SAY[way](claude, max_tokens=2)
    assert stopped.content[0].text == "one "
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "STOP")
    assert (limited.content[0].text, limited.stop_reason) == ("on", "max_tokens")


@pytest.mark.parametrize("way", SAY)
@pytest.mark.parametrize("order", [1, -1])
def test_tools_there_and_back(
    tool_bench: Bench, claude_with_tools: anthropic.Anthropic, way: str, order: int
) -> None:
    tool_bench.say(CALLS)
    message = SAY[way](claude_with_tools, tools=[TOOL])
    text, *uses = message.content
    assert (text.type, text.text) == ("text", "I look.")
    assert [(use.name, use.input) for use in uses] == [
        ("look", {"at": "sea", "n": 1.0}),
        ("look", {}),
    ]
    assert message.stop_reason == "tool_use"
    results = [
        {
            "type": "tool_result",
            "tool_use_id": use.id,
            "content": [{"type": "text", "text": f"result {index}"}],
        }
        for index, use in enumerate(uses)
    ]
    answer = {"role": "assistant", "content": [block.model_dump() for block in message.content]}
    say(claude_with_tools, HI, answer, {"role": "user", "content": results[::order]}, tools=[TOOL])
    first, second = tool_bench.engine.served
    assert goes_on_from(second, first)
    added = tool_bench.chat.decode(second.prompt[len(first.prompt) + len(first.token_ids) :])
    assert added.index("result 0") < added.index("result 1")
    (history,) = build_histories(tool_bench.all_records())
    assert history.token_ids == second.prompt + second.token_ids


def test_results_and_words_in_one_message(
    tool_bench: Bench, claude_with_tools: anthropic.Anthropic
) -> None:
    tool_bench.say(CALLS)
    message = say(claude_with_tools, tools=[TOOL])
    answer = {"role": "assistant", "content": [block.model_dump() for block in message.content]}
    result = {"type": "tool_result", "tool_use_id": message.content[1].id, "content": "r"}
    words = {"type": "text", "text": "Go on."}
    say(claude_with_tools, HI, answer, {"role": "user", "content": [result, words]}, tools=[TOOL])
    roles = [message["role"] for message in tool_bench.all_records()[1].messages]
    assert roles == ["user", "assistant", "tool", "user"]


@pytest.mark.parametrize("way", SAY)
def test_thinking(
    bench_of: Callable[[ChatFormat], Bench], thinking_chat: ChatFormat, way: str
) -> None:
    bench = bench_of(thinking_chat)
    bench.say("<think>\nHm.\n</think>\n\nhello")
    with client_of(bench) as client:
        asked = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}
        thinking, text = SAY[way](client, **asked).content
    assert (thinking.thinking, text.text) == ("Hm.", "hello")


def test_errors_are_in_anthropics_shape(bench: Bench, claude: anthropic.Anthropic) -> None:
    bench.do(EngineOverloadedError("full"))
    with pytest.raises(anthropic.RateLimitError, match="full"):
        say(claude)
    with pytest.raises(anthropic.RateLimitError, match="full"):
        list(say(claude, stream=True))
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        say(claude, extra_body={"temperature": "hot"})
    with (
        anthropic.Anthropic(base_url=bench.server.url, api_key="x", max_retries=0) as stranger,
        pytest.raises(anthropic.NotFoundError, match="does not exist") as caught,
    ):
        say(stranger)
    body: Any = caught.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")


def test_an_engine_that_fails_in_a_stream(bench: Bench, claude: anthropic.Anthropic) -> None:
    bench.do(bench.spell("some"), EngineDiedError("out of memory"))
    with pytest.raises(anthropic.APIError, match="out of memory"):
        list(say(claude, stream=True))
    assert [record.status for record in bench.all_records()] == [CompletionStatus.FAILED]


def test_leaving_a_stream(bench: Bench, claude: anthropic.Anthropic) -> None:
    hold = Hold()
    bench.do(bench.spell("some"), hold, [bench.end])
    with say(claude, stream=True) as stream:
        next(iter(stream))
    eventually(lambda: len(bench.all_records()) == 1)
    assert bench.all_records()[0].status is CompletionStatus.ABANDONED


def test_a_retry_abandons_the_attempt_before(bench: Bench, claude: anthropic.Anthropic) -> None:
    bench.say("x")
    for count in ("0", "1"):
        say(claude, extra_headers={"x-stainless-retry-count": count})
    statuses = [record.status for record in bench.all_records()]
    assert statuses == [CompletionStatus.ABANDONED, CompletionStatus.COMPLETED]


IMAGE = {"type": "image", "source": {"type": "url", "url": "x"}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "assistant", "content": [IMAGE]}]}, "messages[0].content[0]"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tool_choice": {"type": "sometimes"}}, "tool_choice"),
        ({"tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"n": 2}, "n"),
    ],
)
def test_what_it_cannot_do_is_named(
    http: httpx.Client, ticket: RolloutTicket, fields: dict[str, Any], param: str
) -> None:
    body = {"model": "m", "max_tokens": 10, "messages": [HI], **fields}
    response = http.post(f"{ticket.base_url}/messages", content=json.dumps(body))
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert response.json()["error"]["message"].startswith(param)


def test_a_chat_goes_on_from_a_message(bench: Bench, claude: anthropic.Anthropic) -> None:
    bench.say("hello")
    say(claude)
    base = str(claude.base_url).rstrip("/")
    with openai.OpenAI(base_url=f"{base}/v1", api_key="any") as client:
        messages: Any = [HI, {"role": "assistant", "content": "hello"}, HI]
        client.chat.completions.create(model="m", messages=messages)
    first, second = bench.engine.served
    assert goes_on_from(second, first)
