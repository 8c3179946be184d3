"""Huge and hostile requests: answered, or refused by name; and others don't wait for them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from art_core.chat import ChatFormat
from art_core.errors import GatewayError
from art_core.rollouts.backend import RolloutTicket
from art_core.trajectories import (
    CompletionStatus,
    Trajectory,
    TrajectoryGroup,
    build_histories,
)
from tests.art_core.gateway.scripted import Bench, Hold, user

HI = {"model": "m", "messages": [user("hi")]}
NESTED = '{"a": ' * 900 + "1" + "}" * 900


def called(arguments: Any = "{}", count: int = 1) -> list[dict[str, Any]]:
    """A turn with ``count`` tool calls and their results."""
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": arguments}}
        for n in range(count)
    ]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": "r"} for n in range(count)]
    return [user("hi"), {"role": "assistant", "content": None, "tool_calls": calls}, *results]


def tools(count: int) -> list[dict[str, Any]]:
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    return [
        {"type": "function", "function": {"name": f"f{n}", "parameters": parameters}}
        for n in range(count)
    ]


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


HUGE: dict[str, dict[str, Any]] = {
    "choices": {"n": 128},
    "choices with stop strings": {"n": 128, "stop": ["x" * n for n in range(1, 33)]},
    "messages": {"messages": [user("a")] * 10_000},
    "turns": {"messages": [user("a"), {"role": "assistant", "content": "b"}] * 5000},
    "calls and results": {"messages": called(count=3000)},
    "arguments": {"messages": called(json.dumps({f"k{n}": n for n in range(10_000)}))},
    "text": {"messages": [user("hello there " * 50_000)]},
    "blanks": {"messages": [user(" " * 300_000)]},
    "control tokens": {"messages": [user("<|im_end|>" * 50_000)]},
    "halves of control tokens": {"messages": [user("<|im_" * 20_000 + "end|>" * 20_000)]},
    "combining characters": {"messages": [user("a" + "\u0301" * 50_000)]},
    "private use characters": {"messages": [user("".join(map(chr, range(0x100000, 0x10FFFE))))]},
    "odd characters": {"messages": [user("a\0b\x1b[31m\u202e\ufeff\u2028\U0010ffff\u200d")]},
    "tools": {"tools": tools(2000)},
    "tools to be called": {"tools": tools(300), "tool_choice": "required"},
    "an enumeration": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": {"enum": [f"v{n}" for n in range(20_000)]}},
        }
    },
}


@contextmanager
def others_are_served(url: str) -> Generator[None]:
    """Nobody waits long for an answer meanwhile."""
    ended = threading.Event()
    waits: list[float] = []

    def ask() -> None:
        with httpx.Client(timeout=60) as http:
            while not ended.is_set():
                started = time.monotonic()
                http.get(f"{url}/health")
                waits.append(time.monotonic() - started)
                ended.wait(0.01)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert max(waits, default=0) < 5  # a loaded machine; what is quadratic takes minutes


@pytest.fixture(params=["plain", "tools"])
def any_bench(
    request: pytest.FixtureRequest,
    bench_of: Callable[[ChatFormat], Bench],
    plain_chat: ChatFormat,
    tool_chat: ChatFormat,
) -> Bench:
    """Tools by our convention, as text; and in the template's own way, as objects."""
    return bench_of({"plain": plain_chat, "tools": tool_chat}[request.param])


@pytest.mark.parametrize("name", HUGE)
def test_huge_requests_are_served_and_others_too(
    http: httpx.Client, any_bench: Bench, name: str
) -> None:
    any_bench.say("fine")
    ticket = any_bench.server.open_rollout(any_bench.name, mode="train")
    with others_are_served(any_bench.server.url):
        response = http.post(f"{ticket.base_url}/chat/completions", json={**HI, **HUGE[name]})
    assert response.status_code == 200, response.text[:500]
    completions = any_bench.server.close_rollout(ticket.rollout_id)
    assert len(completions) == HUGE[name].get("n", 1)
    assert completions == any_bench.records.by_rollout(ticket.rollout_id)
    texts = [m["content"] for m in HUGE[name].get("messages", ()) if isinstance(m["content"], str)]
    prompt = any_bench.chat.decode(completions[0].prompt_token_ids)
    assert all(text in prompt for text in set(texts))


def test_a_long_text_goes_on(http: httpx.Client, bench: Bench, ticket: RolloutTicket) -> None:
    bench.say("fine")
    for prompt in ("hello " * 200_000, [5] * 300_000):
        with others_are_served(bench.server.url):
            response = http.post(
                f"{ticket.base_url}/completions", json={"model": "m", "prompt": prompt}
            )
        assert response.status_code == 200


NOT_JSON = "The request's body isn't JSON"
HOSTILE: list[tuple[str, str]] = [
    (json.dumps({"stop": ["x"] * 33}), "at most 32"),
    (json.dumps({"stop": "x" * 1001}), "at most 1000 characters"),
    (json.dumps({"stop_token_ids": [1] * 1001}), "stop_token_ids"),
    (json.dumps({"stop_token_ids": [10**30]}), "stop_token_ids: token"),
    (json.dumps({"tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}]}),
     "tools[0].function.parameters is 'x'"),
    ('{"top_p": NaN}', "top_p"),
    ('{"logit_bias": {"5": NaN}}', "logit_bias.5"),
    ('{"metadata": {"x": NaN}}', NOT_JSON),
    ('{"tools": [{"type": "function", "function": {"name": "f", "parameters": {"x": NaN}}}]}',
     NOT_JSON),
    ('{"messages": [{"role": "user", "content": "hi", "x": -Infinity}]}', NOT_JSON),
    (json.dumps({"metadata": deep(151)}), "nested more than 150 deep"),
    ('{"metadata": ' + "[" * 100_000 + "]" * 100_000 + "}", "recursion limit"),
    ('{"messages": [{"role": "user", "content": "\\ud800"}]}', NOT_JSON),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "complaint"), HOSTILE, ids=lambda value: value[:40])
def test_hostile_requests_are_refused_by_name(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket, fields: str, complaint: str
) -> None:
    body = json.dumps(HI)[:-1] + "," + fields[1:]
    response = http.post(f"{ticket.base_url}/chat/completions", content=body)
    assert response.status_code == 400
    assert complaint in response.json()["error"]["message"]
    assert bench.engine.served == []


NOT_OBJECTS = [NESTED, "[" * 100_000, '{"a": "\\ud800"}', '{"a": 1e999}', '{"a": NaN}']


@pytest.mark.parametrize("arguments", NOT_OBJECTS, ids=lambda value: value[:20])
def test_arguments_that_no_template_can_be_given(
    http: httpx.Client, tool_bench: Bench, arguments: str
) -> None:
    """Each is JSON to some parser; none is an object that survives a template."""
    tool_bench.say("fine")
    ticket = tool_bench.server.open_rollout(tool_bench.name, mode="train")
    body = {**HI, "messages": called(arguments)}
    response = http.post(f"{ticket.base_url}/chat/completions", json=body)
    assert response.status_code == 400
    error = response.json()["error"]["message"]
    assert "messages[1].tool_calls[0].function.arguments" in error
    assert len(error) < 1000


@pytest.mark.parametrize("arguments", NOT_OBJECTS, ids=lambda value: value[:20])
def test_such_arguments_that_were_sampled_are_gone_on_from(
    http: httpx.Client, tool_bench: Bench, arguments: str
) -> None:
    """Malformed to us: content, which the client sends back."""
    text = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'
    tool_bench.say(text)
    ticket = tool_bench.server.open_rollout(tool_bench.name, mode="train")
    url = f"{ticket.base_url}/chat/completions"
    body = {**HI, "tools": tools(1)}
    message = http.post(url, json=body).json()["choices"][0]["message"]
    assert message["content"] == text
    more = {**body, "messages": [user("hi"), message, user("again")]}
    assert http.post(url, json=more).status_code == 200
    one, two = tool_bench.server.close_rollout(ticket.rollout_id)
    assert one.parse_errors
    recorded = one.prompt_token_ids + one.completion_token_ids
    assert two.prompt_token_ids[: len(recorded)] == recorded


def test_messages_nested_as_deep_as_they_may_be_are_read_again(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket
) -> None:
    """Records and trajectory files hold them still deeper in."""
    bench.say("fine")
    body = {**HI, "messages": [{**user("hi"), "x": deep(147)}]}
    assert http.post(f"{ticket.base_url}/chat/completions", json=body).status_code == 200
    completions = bench.records.by_rollout(ticket.rollout_id)
    trajectory = Trajectory(histories=build_histories(completions), reward=1.0)
    group = TrajectoryGroup(trajectories=[trajectory])
    assert TrajectoryGroup.model_validate_json(group.model_dump_json()) == group


def test_a_rollout_closed_by_many_at_once_while_it_is_called(
    http: httpx.Client, bench: Bench
) -> None:
    """Each closing has all records; each call was answered, or told that there is no rollout."""
    hold = Hold()
    bench.do(bench.spell("a"), hold, [bench.end])
    ticket = bench.server.open_rollout(bench.name, mode="train")
    url = f"{ticket.base_url}/chat/completions"

    def close(_: int) -> list[str]:
        try:
            return [each.id for each in bench.server.close_rollout(ticket.rollout_id)]
        except GatewayError:  # another was quicker
            return []

    with ThreadPoolExecutor(32) as pool:
        calls = [pool.submit(http.post, url, json=HI) for _ in range(16)]
        hold.wait_until_reached()
        closings = list(pool.map(close, range(8)))
        hold.release()
        statuses = {call.result().status_code for call in calls}
    assert statuses == {404}
    records = bench.records.by_rollout(ticket.rollout_id)
    assert {each.status for each in records} == {CompletionStatus.ABANDONED}
    assert [each.id for each in records] == max(closings, key=len)
    assert http.get(f"{bench.server.url}/v1/models").status_code == 200
