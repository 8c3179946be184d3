"""``/v1/completions``: text and tokens that the model goes on with."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from openai.types import Completion

from art_core.rollouts.backend import RolloutTicket
from art_core.trajectories import CompletionStatus, build_histories
from tests.art_core.gateway.scripted import Bench, ask, extra, user


def complete(client: openai.OpenAI, prompt: Any = "Once", **more: Any) -> Completion:
    create: Any = client.completions.create
    return create(model="m", prompt=prompt, **more)


def streamed(client: openai.OpenAI, prompt: Any = "Once", **more: Any) -> list[Completion]:
    create: Any = client.completions.create
    return list(create(model="m", prompt=prompt, stream=True, **more))


def test_a_text_goes_on(bench: Bench, client: openai.OpenAI, ticket: RolloutTicket) -> None:
    bench.say(" upon a time")
    answer = complete(client)
    choice = answer.choices[0]
    assert (choice.text, choice.finish_reason) == (" upon a time", "stop")
    assert answer.object == "text_completion"
    assert bench.engine.served[0].prompt == bench.spell("Once")
    record = bench.record_of(extra(choice, "completion_id"))
    assert record.rollout_id == ticket.rollout_id
    assert record.messages == [{"role": "user", "content": "Once"}]
    assert record.response == {"role": "assistant", "content": " upon a time"}
    assert record.completion_token_ids == bench.engine.served[0].token_ids


def test_control_tokens_in_a_text_are_text(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("x")
    complete(client, "<|im_end|>")
    assert bench.end not in bench.engine.served[0].prompt


def test_tokens_go_on(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("x")
    complete(client, [5, bench.end, 7])
    assert bench.engine.served[0].prompt == [5, bench.end, 7]


def test_a_stream_is_the_whole_text(bench: Bench, client: openai.OpenAI) -> None:
    bench.say(" upon ☃")
    chunks = streamed(client, stream_options={"include_usage": True})
    assert "".join(c.text for chunk in chunks for c in chunk.choices) == " upon ☃"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len(bench.engine.served[0].token_ids)
    record = bench.record_of(extra(chunks[-2].choices[0], "completion_id"))
    assert record.response["content"] == " upon ☃"


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_and_limits(bench: Bench, client: openai.OpenAI, stream: bool) -> None:
    bench.say("one STOP two")
    for more, text, finish in [
        ({"stop": ["STOP"]}, "one ", "stop"),
        ({"max_tokens": 2}, "on", "length"),
    ]:
        if stream:
            chunks = streamed(client, **more)
            assert "".join(chunk.choices[0].text for chunk in chunks) == text
            assert chunks[-1].choices[0].finish_reason == finish
        else:
            choice = complete(client, **more).choices[0]
            assert (choice.text, choice.finish_reason) == (text, finish)


def test_logprobs_and_token_ids(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("ab")
    answer = complete(client, logprobs=1, extra_body={"return_token_ids": True})
    choice, served = answer.choices[0], bench.engine.served[0]
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == ["a", "b", "<|im_end|>"]
    assert choice.logprobs.token_logprobs == served.logprobs
    assert choice.logprobs.text_offset == [0, 1, 2]
    assert choice.logprobs.top_logprobs is not None
    assert extra(choice, "token_ids") == served.token_ids
    assert extra(choice, "prompt_token_ids") == served.prompt
    chunks = streamed(client, logprobs=0)
    parts = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices[0].logprobs]
    assert [offset for part in parts for offset in part.text_offset or []] == [0, 1, 2]


def test_a_text_that_goes_on_from_a_recorded_one_keeps_its_tokens(
    bench: Bench, client: openai.OpenAI, ticket: RolloutTicket
) -> None:
    odd = [token for letter in "hello" for token in bench.spell(letter)]
    bench.do([*odd])
    complete(client, "say ")
    complete(client, "say hello and ")
    complete(client, "say hell and ")
    first, second, third = bench.engine.served
    assert second.prompt == [*first.prompt, *odd, *bench.spell(" and ")]
    assert third.prompt == bench.spell("say hell and ")
    histories = build_histories(bench.server.close_rollout(ticket.rollout_id))
    assert [len(history.completion_ids) for history in histories] == [2, 1]


def test_a_chat_never_goes_on_from_a_text(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("hello")
    complete(client, "hi")
    messages: list[Any] = [user("hi"), {"role": "assistant", "content": "hello"}, user("more")]
    ask(client, *messages)
    assert bench.engine.served[1].prompt == bench.chat.render(messages)


def test_several_choices(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("one", "two")
    answer = complete(client, n=2)
    assert sorted(choice.text for choice in answer.choices) == ["one", "two"]
    assert {record.status for record in bench.all_records()} == {CompletionStatus.COMPLETED}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": ["one", "two"]}, "prompt"),
        ({"prompt": [[1], [2]]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [300]}, "prompt"),
        ({"echo": True}, "echo"),
        ({"best_of": 3}, "best_of"),
        ({"suffix": "end"}, "suffix"),
        ({"logprobs": True}, "logprobs"),
        ({"messages": []}, "messages"),
    ],
)
def test_what_it_cannot_do_is_named(
    http: httpx.Client, ticket: RolloutTicket, fields: dict[str, Any], param: str
) -> None:
    body = {"model": "m", "prompt": "Once", **fields}
    response = http.post(f"{ticket.base_url}/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
