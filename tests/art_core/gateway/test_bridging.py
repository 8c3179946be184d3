"""Turns go on from the recorded tokens, whatever the client does to the messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from art_core.chat import ChatFormat
from art_core.rollouts.backend import RolloutTicket
from art_core.trajectories import Completion, build_histories
from tests.art_core.gateway.scripted import Bench, Served, Step, ask, ask_streaming, user

ODD = ["h", "e", "l", "l", "o"]
"""A spelling of "hello" that no tokenizer would choose: it has a token for the word."""


def odd_hello(bench: Bench) -> list[int]:
    return [token for letter in ODD for token in bench.spell(letter)]


def reply(answer: ChatCompletion) -> dict[str, Any]:
    return answer.choices[0].message.model_dump(exclude_none=True)


def goes_on_from(later: Served, earlier: Served) -> bool:
    recorded = earlier.prompt + earlier.token_ids
    return later.prompt[: len(recorded)] == recorded


def finished(bench: Bench, ticket: RolloutTicket) -> list[Completion]:
    """The rollout's records; each holds exactly what the engine saw and sampled."""
    completions = bench.server.close_rollout(ticket.rollout_id)
    assert bench.records.by_rollout(ticket.rollout_id) == completions
    seen = [(served.prompt, served.token_ids, served.logprobs) for served in bench.engine.served]
    recorded = [(c.prompt_token_ids, c.completion_token_ids, c.logprobs) for c in completions]
    assert sorted(recorded) == sorted(seen)
    return completions


def test_a_second_turn_keeps_the_sampled_tokens(
    bench: Bench, client: openai.OpenAI, ticket: RolloutTicket
) -> None:
    bench.do([*odd_hello(bench), bench.end])
    assert odd_hello(bench) != bench.spell("hello")
    messages = [user("hi")]
    for _ in range(3):
        messages += [reply(ask(client, *messages)), user("again")]
    first, second, third = bench.engine.served
    assert goes_on_from(second, first)
    assert goes_on_from(third, second)
    (history,) = build_histories(finished(bench, ticket))
    assert history.token_ids == third.prompt + third.token_ids
    assert history.sampled_tokens == 3 * 6
    # What the whole conversation would be in a tokenizer's own words is something else.
    assert third.prompt != bench.chat.render(messages[:-2])


def test_a_streamed_turn_is_gone_on_from_too(bench: Bench, client: openai.OpenAI) -> None:
    bench.do([*odd_hello(bench), bench.end])
    ask_streaming(client)
    ask(client, user("hi"), {"role": "assistant", "content": "hello"}, user("again"))
    first, second = bench.engine.served
    assert goes_on_from(second, first)


def test_interleaved_sub_agents_are_two_histories(
    bench: Bench, client: openai.OpenAI, ticket: RolloutTicket
) -> None:
    bench.do([*odd_hello(bench), bench.end])
    system = {"role": "system", "content": "You are B"}
    conversations: list[list[Any]] = [[user("A")], [system, user("B")]]
    for turn in range(3):
        for messages in conversations:
            messages += [reply(ask(client, *messages)), user(f"turn {turn}")]
    histories = build_histories(finished(bench, ticket))
    assert len(histories) == 2
    assert [len(history.completion_ids) for history in histories] == [3, 3]
    served = bench.engine.served
    for history, last in zip(histories, served[-2:], strict=True):
        assert history.token_ids == last.prompt + last.token_ids
    assert [h.messages_and_choices[0] for h in histories] == [user("A"), system]


def test_branches_from_one_parent(
    bench: Bench, client: openai.OpenAI, ticket: RolloutTicket
) -> None:
    bench.do([*odd_hello(bench), bench.end])
    start = [user("hi"), reply(ask(client))]
    for branch in ("left", "right"):
        ask(client, *start, user(branch))
    parent, left, right = bench.engine.served
    assert goes_on_from(left, parent)
    assert goes_on_from(right, parent)
    histories = build_histories(finished(bench, ticket))
    assert [history.sampled_tokens for history in histories] == [12, 6]


def test_each_choice_of_several_is_gone_on_from(
    bench: Bench, client: openai.OpenAI, ticket: RolloutTicket
) -> None:
    spellings = [[*odd_hello(bench), bench.end], [*bench.spell("ab"), bench.end]]
    scripts: list[list[Step]] = [[spelling] for spelling in spellings * 2]
    bench.engine.script = lambda prompt, sampling: scripts.pop(0)
    answer = ask(client, n=2)
    for choice in answer.choices:
        ask(client, user("hi"), choice.message.model_dump(exclude_none=True), user("more"))
    one, two, on_one, on_two = bench.engine.served
    assert goes_on_from(on_one, one)
    assert goes_on_from(on_two, two)
    histories = build_histories(finished(bench, ticket))
    assert [len(history.completion_ids) for history in histories] == [2, 2]


def test_equal_prompts_with_equal_answers_are_both_gone_on_from(
    bench: Bench, client: openai.OpenAI, ticket: RolloutTicket
) -> None:
    """Two agents ask and hear the same, in other tokens; each second turn takes one of them."""
    scripts: list[list[Step]] = [
        [[*odd_hello(bench), bench.end]],
        [[*bench.spell("hello"), bench.end]],
    ]
    bench.engine.script = lambda prompt, sampling: scripts.pop(0) if scripts else [[bench.end]]
    said = [reply(ask(client)), reply(ask(client))]
    assert said[0] == said[1]
    for message in said:
        ask(client, user("hi"), message, user("more"))
    one, two, three, four = bench.engine.served
    assert goes_on_from(three, one)
    assert goes_on_from(four, two)
    histories = build_histories(finished(bench, ticket))
    assert [len(history.completion_ids) for history in histories] == [2, 2]


def test_after_truncation(bench: Bench, client: openai.OpenAI, ticket: RolloutTicket) -> None:
    bench.do([*odd_hello(bench), bench.end])
    answer = ask(client, max_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    ask(client, user("hi"), reply(answer), user("go on"))
    first, second = bench.engine.served
    assert goes_on_from(second, first)
    (history,) = build_histories(finished(bench, ticket))
    assert history.loss_mask[len(first.prompt) + 3] is False  # the end of turn was not sampled


def test_after_a_stop_string(bench: Bench, client: openai.OpenAI, ticket: RolloutTicket) -> None:
    bench.do(*([token] for token in [*odd_hello(bench), *bench.spell(" STOP"), bench.end]))
    answer = ask(client, stop=" STOP")
    assert answer.choices[0].message.content == "hello"
    ask(client, user("hi"), reply(answer), user("go on"), stop=" STOP")
    first, second = bench.engine.served
    assert goes_on_from(second, first)
    (history,) = build_histories(finished(bench, ticket))
    assert history.sampled_tokens == 2 * len(first.token_ids)


def test_an_edited_past_starts_a_new_history(
    bench: Bench, client: openai.OpenAI, ticket: RolloutTicket
) -> None:
    bench.do([*odd_hello(bench), bench.end])
    system = {"role": "system", "content": "It is Monday."}
    message = reply(ask(client, system, user("hi")))
    ask(client, {**system, "content": "It is Tuesday."}, user("hi"), message, user("more"))
    first, second = bench.engine.served
    assert not goes_on_from(second, first)
    assert len(build_histories(finished(bench, ticket))) == 2


def test_another_rollouts_conversation_is_not_gone_on_from(bench: Bench) -> None:
    bench.do([*odd_hello(bench), bench.end])
    for _ in range(2):
        ticket = bench.server.open_rollout(bench.name, mode="train")
        with openai.OpenAI(base_url=ticket.base_url, api_key="x") as client:
            ask(client, user("hi"), {"role": "assistant", "content": "hello"}, user("more"))
    whole = bench.chat.render([user("hi"), {"role": "assistant", "content": "hello"}, user("more")])
    assert [served.prompt for served in bench.engine.served] == [whole, whole]


TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Look somewhere",
            "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
        },
    }
    for name in ("look", "find")
]
CALLS = (
    '<tool_call>\n{"name":  "look", "arguments": {"at": "s\\u0065a", "n": 1.0, "deep": true}}\n'
    '</tool_call>\n<tool_call>\n{"arguments": {}, "name": "find"}\n</tool_call>'
)
"""Spaces, order, escapes and numbers that no serialiser would write so."""

Client = Callable[[dict[str, Any]], dict[str, Any]]


def with_arguments(change: Callable[[str], str]) -> Client:
    def changed(call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        return {**call, "function": {**function, "arguments": change(function["arguments"])}}

    return lambda message: {**message, "tool_calls": [*map(changed, message["tool_calls"])]}


CLIENTS: dict[str, Client] = {
    "as received": lambda message: message,
    "json again": with_arguments(lambda arguments: json.dumps(json.loads(arguments))),
    "json sorted": with_arguments(
        lambda arguments: json.dumps(json.loads(arguments), sort_keys=True, indent=1)
    ),
    "whole numbers": with_arguments(lambda arguments: arguments.replace("1.0", "1")),
    "nulls and extras": lambda message: {
        **message,
        "content": None,
        "refusal": None,
        "annotations": [],
        "function_call": None,
        "audio": None,
    },
    "empty content": lambda message: {**message, "content": ""},
    "no content": lambda message: {k: v for k, v in message.items() if k != "content"},
}


@pytest.fixture
def tool_client(tool_bench: Bench) -> Iterator[openai.OpenAI]:
    ticket = tool_bench.server.open_rollout(tool_bench.name, mode="train")
    with openai.OpenAI(base_url=ticket.base_url, api_key="any", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("order", [1, -1])
def test_after_tool_calls_that_the_client_wrote_anew(
    tool_bench: Bench, tool_client: openai.OpenAI, name: str, order: int
) -> None:
    tool_bench.say(CALLS)
    answer = ask(tool_client, tools=TOOLS)
    assert answer.choices[0].finish_reason == "tool_calls"
    message = CLIENTS[name](answer.choices[0].message.model_dump())
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"result {index}"}
        for index, call in enumerate(message["tool_calls"])
    ][::order]
    ask(tool_client, user("hi"), message, *results, tools=TOOLS)
    first, second = tool_bench.engine.served
    assert goes_on_from(second, first)
    added = tool_bench.chat.decode(second.prompt[len(first.prompt) + len(first.token_ids) :])
    assert added.index("result 0") < added.index("result 1")
    (history,) = build_histories(tool_bench.all_records())
    assert history.token_ids == second.prompt + second.token_ids


MEDDLERS: dict[str, Client] = {
    "another type": with_arguments(lambda arguments: arguments.replace("true", "1")),
    "another name": with_arguments(lambda arguments: arguments.replace("deep", "flat")),
    "other words": lambda message: {**message, "content": "other words"},
}


@pytest.mark.parametrize("name", MEDDLERS)
def test_after_tool_calls_that_the_client_changed_a_new_history_starts(
    tool_bench: Bench, tool_client: openai.OpenAI, name: str
) -> None:
    tool_bench.say(CALLS)
    message = MEDDLERS[name](reply(ask(tool_client, tools=TOOLS)))
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "r"}
    ask(tool_client, user("hi"), message, result, tools=TOOLS)
    first, second = tool_bench.engine.served
    assert not goes_on_from(second, first)


def test_other_tools_start_a_new_history(tool_bench: Bench, tool_client: openai.OpenAI) -> None:
    tool_bench.say("plain")
    message = reply(ask(tool_client, tools=TOOLS))
    ask(tool_client, user("hi"), message, user("more"), tools=TOOLS[:1])
    first, second = tool_bench.engine.served
    assert not goes_on_from(second, first)


def test_a_malformed_tool_call_is_gone_on_from_as_the_text_it_is(
    tool_bench: Bench, tool_client: openai.OpenAI
) -> None:
    tool_bench.say('<tool_call>\n{"name": "look", \n</tool_call>')
    message = reply(ask(tool_client, tools=TOOLS))
    ask(tool_client, user("hi"), message, user("That was no JSON."), tools=TOOLS)
    first, second = tool_bench.engine.served
    assert goes_on_from(second, first)


def test_a_template_that_drops_reasoning_starts_a_new_history(
    bench_of: Callable[[ChatFormat], Bench], thinking_chat: ChatFormat
) -> None:
    bench = bench_of(thinking_chat)
    bench.say("<think>\nHm.\n</think>\n\nhello")
    ticket = bench.server.open_rollout(bench.name, mode="train")
    with openai.OpenAI(base_url=ticket.base_url, api_key="any", max_retries=0) as client:
        answer = ask(client)
        assert answer.choices[0].message.content == "hello"
        assert answer.choices[0].message.reasoning_content == "Hm."  # type: ignore[attr-defined]
        ask(client, user("hi"), reply(answer), user("more"))
    first, second = bench.engine.served
    assert not goes_on_from(second, first)
    assert second.prompt == bench.chat.render([user("hi"), reply(answer), user("more")])
    histories = build_histories(finished(bench, ticket))
    assert [history.sampled_tokens for history in histories] == [len(first.token_ids)] * 2


def test_a_format_that_breaks_its_promise_is_found_out(
    bench: Bench, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.say("hello")
    message = reply(ask(client))

    def broken(chat: object, recorded: list[int], *rest: object, sampled: int) -> list[int]:
        return [*recorded[:-1], 5]

    monkeypatch.setattr(type(bench.chat), "bridge", broken)
    with pytest.raises(openai.InternalServerError, match="bridge changed the recorded tokens"):
        ask(client, user("hi"), message, user("more"))
    assert len(bench.engine.served) == 1
