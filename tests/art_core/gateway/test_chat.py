"""Chat completions through OpenAI's own client: what it gets, and what is recorded."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from art_core.rollouts.backend import RolloutTicket
from art_core.trajectories import CompletionStatus, SamplingParams, choice_completion_id
from tests.art_core.gateway.scripted import (
    Bench,
    ask,
    ask_streaming,
    extra,
    text_of,
    user,
)


def test_a_whole_answer(bench: Bench, client: openai.OpenAI, ticket: RolloutTicket) -> None:
    bench.say("hello there")
    answer = ask(client, model="gpt-4o")
    choice = answer.choices[0]
    assert choice.message.content == "hello there"
    assert choice.finish_reason == "stop"
    assert answer.model == "gpt-4o"
    assert extra(answer, "policy_version") == 0
    prompt = bench.chat.render([user("hi")])
    sampled = [*bench.spell("hello there"), bench.end]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(prompt)
    assert answer.usage.completion_tokens == len(sampled)

    record = bench.record_of(extra(choice, "completion_id"))
    (served,) = bench.engine.served
    assert (record.prompt_token_ids, record.completion_token_ids) == (prompt, sampled)
    assert record.logprobs == served.logprobs
    assert record.trainable == [True] * len(sampled)
    assert record.rollout_id == ticket.rollout_id
    assert record.status is CompletionStatus.COMPLETED
    assert record.messages == [user("hi")]
    assert record.response == {"role": "assistant", "content": "hello there"}
    assert record.started_at <= record.finished_at


def test_a_streamed_answer(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("hello there ☃")
    chunks = ask_streaming(client)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert text_of(chunks) == "hello there ☃"
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    record = bench.record_of(extra(chunks[-1].choices[0], "completion_id"))
    assert record.completion_token_ids == bench.engine.served[0].token_ids
    assert record.response["content"] == "hello there ☃"


def test_half_a_character_is_never_sent(bench: Bench, client: openai.OpenAI) -> None:
    """A snowman is three tokens here."""
    bench.say("☃☃")
    assert len(bench.spell("☃☃")) == 6
    for chunk in ask_streaming(client):
        assert "\ufffd" not in (chunk.choices[0].delta.content or "")


def test_the_client_library_puts_a_stream_together(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("hello there")
    with client.chat.completions.stream(model="m", messages=[user("hi")]) as stream:
        completion = stream.get_final_completion()
    choice = completion.choices[0]
    assert choice.message.content == "hello there"
    assert bench.record_of(extra(choice, "completion_id")).response["content"] == "hello there"


async def test_the_asynchronous_client(bench: Bench, ticket: RolloutTicket) -> None:
    bench.say("hello")
    async with openai.AsyncOpenAI(base_url=ticket.base_url, api_key="any") as client:
        whole = await client.chat.completions.create(model="m", messages=[user("hi")])
        assert whole.choices[0].message.content == "hello"
        stream = await client.chat.completions.create(model="m", messages=[user("hi")], stream=True)
        assert text_of([chunk async for chunk in stream]) == "hello"
    assert len(bench.all_records()) == 2


@pytest.mark.parametrize("include", [True, False])
def test_usage_at_the_end_of_a_stream(bench: Bench, client: openai.OpenAI, include: bool) -> None:
    bench.say("hello")
    last = ask_streaming(client, stream_options={"include_usage": include})[-1]
    if include:
        assert last.choices == []
        assert last.usage is not None
        assert last.usage.completion_tokens == len(bench.spell("hello")) + 1
    else:
        assert last.usage is None


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_token_limit_truncates(
    bench: Bench, client: openai.OpenAI, field: str, stream: bool
) -> None:
    bench.say("abcdef")
    if stream:
        finish = ask_streaming(client, **{field: 3})[-1].choices[0].finish_reason
    else:
        finish = ask(client, **{field: 3}).choices[0].finish_reason
    (record,) = bench.all_records()
    assert finish == "length"
    assert record.status is CompletionStatus.TRUNCATED
    assert record.completion_token_ids == bench.spell("abc")
    assert record.response["content"] == "abc"


def test_several_choices_of_one_request(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("one", "two", "three")
    answer = ask(client, n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    contents = [choice.message.content for choice in answer.choices]
    assert sorted(map(str, contents)) == ["one", "three", "two"]
    records = [bench.record_of(choice_completion_id(c) or "") for c in answer.choices]
    assert [record.response["content"] for record in records] == contents
    assert len({record.request_id for record in records}) == 1
    assert len({record.sampling.seed for record in records}) == 3
    assert answer.usage is not None
    assert answer.usage.completion_tokens == sum(len(r.completion_token_ids) for r in records)


def test_several_choices_streamed(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("one", "two")
    chunks = ask_streaming(client, n=2)
    for index in (0, 1):
        (last,) = [
            choice
            for chunk in chunks
            for choice in chunk.choices
            if choice.index == index and choice.finish_reason
        ]
        record = bench.record_of(extra(last, "completion_id"))
        assert record.response["content"] == text_of(chunks, index)
    assert sorted(text_of(chunks, index) for index in (0, 1)) == ["one", "two"]


STOPS: list[tuple[str | list[str], str]] = [
    ("STOP", "before "),
    (["nothing", "e S"], "befor"),
    (["ST", "OP"], "before "),
    (["☃", "no such thing"], "before STOP "),
]


@pytest.mark.parametrize(("stop", "kept"), STOPS)
@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings(
    bench: Bench, client: openai.OpenAI, stop: str | list[str], kept: str, stream: bool
) -> None:
    bench.say("before STOP ☃ after")
    if stream:
        chunks = ask_streaming(client, stop=stop)
        content, finish = text_of(chunks), chunks[-1].choices[0].finish_reason
    else:
        choice = ask(client, stop=stop).choices[0]
        content, finish = choice.message.content, choice.finish_reason
    assert (content, finish) == (kept, "stop")
    (record,) = bench.all_records()
    assert record.response["content"] == kept
    assert record.status is CompletionStatus.COMPLETED
    # The record ends with the token that completed the stop string, and so did the engine.
    text = bench.chat.decode(record.completion_token_ids)
    stops = [stop] if isinstance(stop, str) else stop
    assert any(text.endswith(each) for each in stops)
    assert not any(each in text[:-1] for each in stops)
    assert bench.engine.served[0].token_ids == record.completion_token_ids
    assert bench.engine.served[0].ending == "cancelled"


def test_tokens_behind_a_stop_string_in_one_chunk_are_dropped(
    bench: Bench, client: openai.OpenAI
) -> None:
    bench.do([*bench.spell("a STOP b"), bench.end])
    choice = ask(client, stop="STOP").choices[0]
    assert choice.message.content == "a "
    (record,) = bench.all_records()
    assert bench.chat.decode(record.completion_token_ids) == "a STOP"
    assert record.logprobs == bench.engine.served[0].logprobs[: len(record.logprobs)]


def test_what_might_become_a_stop_string_is_held_back(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("a STO but no STOP")
    chunks = ask_streaming(client, stop="STOP")
    assert text_of(chunks) == "a STO but no "


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs(bench: Bench, client: openai.OpenAI, stream: bool) -> None:
    bench.say("hi☃")
    if stream:
        chunks = ask_streaming(client, logprobs=True, top_logprobs=2)
        entries = [
            entry
            for chunk in chunks
            for choice in chunk.choices
            if choice.logprobs
            for entry in choice.logprobs.content or []
        ]
    else:
        logprobs = ask(client, logprobs=True, top_logprobs=2).choices[0].logprobs
        assert logprobs is not None
        entries = logprobs.content or []
    (served,) = bench.engine.served
    assert [entry.logprob for entry in entries] == served.logprobs
    assert [entry.token for entry in entries][:2] == ["h", "i"]
    assert all(len(entry.top_logprobs) == 2 for entry in entries)
    assert served.sampling.top_logprobs == 2


def test_logprobs_are_recorded_though_nobody_asked(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("hi")
    assert ask(client).choices[0].logprobs is None
    (record,) = bench.all_records()
    assert record.logprobs == bench.engine.served[0].logprobs


def test_token_ids_on_request(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("hi☃")
    answer = ask(client, extra_body={"return_token_ids": True})
    (served,) = bench.engine.served
    assert extra(answer, "prompt_token_ids") == served.prompt
    assert extra(answer.choices[0], "token_ids") == served.token_ids
    assert not hasattr(ask(client).choices[0], "token_ids")


def test_token_ids_of_a_stream(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("hi☃")
    chunks = ask_streaming(client, extra_body={"return_token_ids": True})
    (served,) = bench.engine.served
    assert extra(chunks[0], "prompt_token_ids") == served.prompt
    assert not any(hasattr(chunk, "prompt_token_ids") for chunk in chunks[1:])
    streamed = [extra(c.choices[0], "token_ids") for c in chunks[:-1]]
    assert [token for part in streamed for token in part] == served.token_ids


TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look somewhere",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    },
}
TOOLS: Any = [TOOL]
CALL_TEXT = 'I look.\n<tool_call>\n{"name": "look", "arguments": {"at": "sea"}}\n</tool_call>'


def tool_client(tool_bench: Bench) -> openai.OpenAI:
    ticket = tool_bench.server.open_rollout(tool_bench.name, mode="train")
    return openai.OpenAI(base_url=ticket.base_url, api_key="any", max_retries=0)


def test_tool_calls(tool_bench: Bench) -> None:
    tool_bench.say(CALL_TEXT)
    with tool_client(tool_bench) as client:
        choice = ask(client, tools=TOOLS).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look."
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("look", '{"at": "sea"}')
    record = tool_bench.record_of(extra(choice, "completion_id"))
    assert record.tools == [TOOL]
    assert record.response["tool_calls"] == [call.model_dump()]
    assert record.finish_reason == "tool_calls"


def test_streamed_tool_calls_are_the_whole_ones(tool_bench: Bench) -> None:
    tool_bench.say(CALL_TEXT)
    with tool_client(tool_bench) as client:
        chunks = ask_streaming(client, tools=TOOLS)
        calls = [c for chunk in chunks for c in chunk.choices[0].delta.tool_calls or []]
        with client.chat.completions.stream(
            model="m", messages=[user("again")], tools=TOOLS
        ) as stream:
            message = stream.get_final_completion().choices[0].message
    assert text_of(chunks) == "I look."
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    (call,) = calls
    assert call.function is not None
    assert call.function.arguments == '{"at": "sea"}'
    record = tool_bench.record_of(extra(chunks[-1].choices[0], "completion_id"))
    assert record.response["tool_calls"] == [call.model_dump(exclude={"index"})]
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.arguments == '{"at": "sea"}'


def test_a_malformed_tool_call_is_content_and_noted(tool_bench: Bench) -> None:
    text = '<tool_call>\n{"name": "look", "arguments": {"at"\n</tool_call>'
    tool_bench.say(text)
    with tool_client(tool_bench) as client:
        choice = ask(client, tools=TOOLS).choices[0]
    assert choice.message.tool_calls is None
    assert '{"name": "look", "arguments": {"at"' in (choice.message.content or "")
    (record,) = tool_bench.all_records()
    assert record.parse_errors


def test_tools_are_left_out_when_none_may_be_called(tool_bench: Bench) -> None:
    tool_bench.say("no tools")
    with tool_client(tool_bench) as client:
        ask(client, tools=TOOLS, tool_choice="none")
        ask(client, tools=TOOLS, tool_choice="auto")
    without, with_tools = tool_bench.engine.served
    assert without.prompt == tool_bench.chat.render([user("hi")])
    assert with_tools.prompt == tool_bench.chat.render([user("hi")], [TOOL])


AGENT_SAMPLING: dict[str, Any] = {
    "temperature": 0,
    "top_p": 0.5,
    "frequency_penalty": 1.5,
    "presence_penalty": -1,
    "extra_body": {"top_k": 3, "min_p": 0.25, "repetition_penalty": 1.3},
}


def test_in_training_the_policy_is_sampled_as_it_is(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("x")
    ask(client, **AGENT_SAMPLING, logit_bias={"5": -3.5}, max_tokens=7)
    sampling = bench.engine.served[0].sampling
    assert sampling.model_copy(update={"seed": None}) == SamplingParams(
        max_tokens=7, stop_token_ids=bench.chat.stop_token_ids, logit_bias={5: -3.5}
    )
    assert sampling.seed is not None


def test_in_evaluation_the_agent_is_sampled_as_it_asks(bench: Bench) -> None:
    bench.say("x")
    ticket = bench.server.open_rollout(bench.name, mode="eval", seed=3)
    asked = {"temperature": 0, "top_p": 0.5, "extra_body": {"top_k": 3, "min_p": 0.25}}
    with openai.OpenAI(base_url=ticket.base_url, api_key="any", max_retries=0) as client:
        ask(client, **asked, seed=12)
        ask(client)
        with pytest.raises(openai.BadRequestError, match=r"frequency_penalty: 1.5 can't be"):
            ask(client, frequency_penalty=1.5)
        ask(client, frequency_penalty=0, presence_penalty=0)
    asked_for, default = (each.sampling for each in bench.engine.served[:2])
    assert (asked_for.temperature, asked_for.top_p) == (0, 0.5)
    assert (asked_for.top_k, asked_for.min_p, asked_for.seed) == (3, 0.25, 12)
    assert (default.temperature, default.top_p, default.top_k) == (1, 1, None)


def seeds_of(bench: Bench, *, rollout_seed: int | None, **asked: Any) -> list[int | None]:
    ticket = bench.server.open_rollout(bench.name, mode="train", seed=rollout_seed)
    before = len(bench.engine.served)
    with openai.OpenAI(base_url=ticket.base_url, api_key="any", max_retries=0) as client:
        for _ in range(2):
            ask(client, n=2, **asked)
    return [served.sampling.seed for served in bench.engine.served[before:]]


def test_seeds_follow_from_the_rollout_and_the_call(bench: Bench) -> None:
    bench.say("x")
    first = seeds_of(bench, rollout_seed=1)
    assert len(set(first)) == 4  # two equal calls of two choices each are four samples
    assert sorted(map(str, seeds_of(bench, rollout_seed=1))) == sorted(map(str, first))
    assert not set(first) & set(seeds_of(bench, rollout_seed=2))
    assert not set(first) & set(seeds_of(bench, rollout_seed=1, seed=5))
    assert not set(first) & set(seeds_of(bench, rollout_seed=None))


def test_an_agents_seed_does_not_make_a_group_all_the_same(bench: Bench) -> None:
    bench.say("x")
    one = seeds_of(bench, rollout_seed=1, seed=42)
    other = seeds_of(bench, rollout_seed=2, seed=42)
    assert not set(one) & set(other)


def test_stop_token_ids_of_the_agent_are_added(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("x")
    ask(client, extra_body={"stop_token_ids": [7]})
    assert bench.engine.served[0].sampling.stop_token_ids == (*bench.chat.stop_token_ids, 7)


@pytest.mark.parametrize(
    "harmless",
    [
        {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto"},
        {"parallel_tool_calls": True, "response_format": {"type": "text"}, "tool_choice": "auto"},
        {"reasoning_effort": "low", "modalities": ["text"]},
        {"extra_body": {"top_k": -1, "verbosity": None, "unheard_of": None}},
    ],
)
def test_fields_that_change_nothing_are_accepted(
    bench: Bench, client: openai.OpenAI, harmless: dict[str, Any]
) -> None:
    bench.say("x")
    assert ask(client, **harmless).choices[0].message.content == "x"


def test_tags_are_kept_with_the_record(bench: Bench) -> None:
    bench.say("x")
    ticket = bench.server.open_rollout(bench.name, mode="train", tags={"scenario": "s1", "a": "b"})
    with openai.OpenAI(base_url=ticket.base_url, api_key="any", max_retries=0) as client:
        ask(client, extra_headers={"x-art-tags": '{"node": "plan", "a": "c"}'})
        with pytest.raises(openai.BadRequestError, match="x-art-tags: must be a JSON object"):
            ask(client, extra_headers={"x-art-tags": '{"node": 1}'})
    (record,) = bench.all_records()
    assert record.tags == {"scenario": "s1", "node": "plan", "a": "c"}
