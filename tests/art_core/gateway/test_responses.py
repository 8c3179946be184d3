"""``/v1/responses`` through OpenAI's own client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

from art_core.chat import ChatFormat
from art_core.errors import EngineDiedError
from art_core.rollouts.backend import RolloutTicket
from art_core.trajectories import CompletionStatus, build_histories
from tests.art_core.gateway.scripted import Bench, Hold, Served, ask, eventually

TOOL: Any = {
    "type": "function",
    "name": "look",
    "description": "Look somewhere",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    "strict": False,
}
CALL = 'I look.\n<tool_call>\n{"name": "look", "arguments": {"at":"sea"}}\n</tool_call>'


def respond(client: openai.OpenAI, said: Any = "hi", **more: Any) -> Any:
    """A `Response`; what its items are is for each test to know."""
    create: Any = client.responses.create
    return create(model="m", input=said, **more)


def respond_streaming(client: openai.OpenAI, said: Any = "hi", **more: Any) -> list[Any]:
    create: Any = client.responses.create
    return list(create(model="m", input=said, stream=True, **more))


def goes_on_from(later: Served, earlier: Served) -> bool:
    recorded = earlier.prompt + earlier.token_ids
    return later.prompt[: len(recorded)] == recorded


@pytest.fixture
def tool_client(tool_bench: Bench) -> Iterator[openai.OpenAI]:
    ticket = tool_bench.server.open_rollout(tool_bench.name, mode="train")
    with openai.OpenAI(base_url=ticket.base_url, api_key="any", max_retries=0) as client:
        yield client


def test_a_whole_response(bench: Bench, client: openai.OpenAI, ticket: RolloutTicket) -> None:
    bench.say("hello there")
    response = respond(client, instructions="Be brief.", metadata={"a": "b"})
    assert response.output_text == "hello there"
    assert (response.status, response.model, response.instructions) == (
        "completed",
        "m",
        "Be brief.",
    )
    assert response.usage is not None
    assert response.usage.output_tokens == len(bench.engine.served[0].token_ids)
    record = bench.record_of(response.completion_id)
    assert record.rollout_id == ticket.rollout_id
    assert record.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]
    assert bench.engine.served[0].prompt == bench.chat.render(record.messages)


def test_a_streamed_response(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("hello ☃")
    events = respond_streaming(client)
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "hello ☃" == events[-1].response.output_text
    record = bench.record_of(events[-1].response.completion_id)
    assert record.response["content"] == "hello ☃"


def test_the_client_library_puts_a_stream_together(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("hello there")
    with client.responses.stream(model="m", input="hi") as stream:
        assert stream.get_final_response().output_text == "hello there"


def test_a_token_limit(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("abcdef")
    response = respond(client, max_output_tokens=3)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert respond_streaming(client, max_output_tokens=3)[-1].type == "response.incomplete"
    assert {r.status for r in bench.all_records()} == {CompletionStatus.TRUNCATED}


def test_logprobs(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("hi")
    response = respond(client, include=["message.output_text.logprobs"], top_logprobs=2)
    part = response.output[0].content[0]
    assert [entry.logprob for entry in part.logprobs] == bench.engine.served[0].logprobs
    assert len(part.logprobs[0].top_logprobs) == 2


def test_going_on_by_id(bench: Bench, client: openai.OpenAI, ticket: RolloutTicket) -> None:
    odd = [token for letter in "hello" for token in bench.spell(letter)]
    bench.do([*odd, bench.end])
    first = respond(client)
    second = respond_streaming(client, "more", previous_response_id=first.id)[-1].response
    respond(client, "and more", previous_response_id=second.id)
    one, two, three = bench.engine.served
    assert goes_on_from(two, one)
    assert goes_on_from(three, two)
    (history,) = build_histories(bench.server.close_rollout(ticket.rollout_id))
    assert history.token_ids == three.prompt + three.token_ids


def test_instructions_hold_for_one_request(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("hello")
    first = respond(client, instructions="Be brief.")
    respond(client, "more", previous_response_id=first.id, instructions="Be long.")
    assert bench.all_records()[1].messages[0]["content"] == "Be long."
    assert [m["role"] for m in bench.all_records()[1].messages] == [
        "system",
        "user",
        "assistant",
        "user",
    ]


def test_an_unknown_response_is_an_error(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("hello")
    unkept = respond(client, store=False)
    other = bench.server.open_rollout(bench.name, mode="train")
    with openai.OpenAI(base_url=other.base_url, api_key="x") as elsewhere:
        foreign = respond(elsewhere)
    for wrong in (unkept.id, foreign.id, "resp_nonsense"):
        with pytest.raises(openai.NotFoundError, match=f"Previous response '{wrong}' was not"):
            respond(client, previous_response_id=wrong)


def test_going_on_with_the_output_items(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("hello")
    first = respond(client)
    items = [item.model_dump() for item in first.output]
    respond(client, [{"role": "user", "content": "hi"}, *items, {"role": "user", "content": "x"}])
    one, two = bench.engine.served
    assert goes_on_from(two, one)


def test_a_chat_goes_on_from_a_response(bench: Bench, client: openai.OpenAI) -> None:
    bench.say("hello")
    respond(client)
    messages: list[Any] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "x"},
    ]
    ask(client, *messages)
    one, two = bench.engine.served
    assert goes_on_from(two, one)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("by_id", [False, True])
def test_function_calls(
    tool_bench: Bench, tool_client: openai.OpenAI, stream: bool, by_id: bool
) -> None:
    tool_bench.say(CALL)
    if stream:
        events = respond_streaming(tool_client, tools=[TOOL])
        response = events[-1].response
        done = [e for e in events if e.type == "response.function_call_arguments.done"]
        assert [event.arguments for event in done] == ['{"at":"sea"}']
        items = [e.item for e in events if e.type == "response.output_item.done"]
        assert sorted(item.id for item in items) == sorted(item.id for item in response.output)
    else:
        response = respond(tool_client, tools=[TOOL])
    message, call = response.output
    assert (message.type, call.type) == ("message", "function_call")
    assert (call.name, call.arguments) == ("look", '{"at":"sea"}')
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "blue"}
    if by_id:
        respond(tool_client, [result], tools=[TOOL], previous_response_id=response.id)
    else:
        items = [item.model_dump() for item in response.output]
        respond(tool_client, [{"role": "user", "content": "hi"}, *items, result], tools=[TOOL])
    one, two = tool_bench.engine.served
    assert goes_on_from(two, one)
    assert tool_bench.all_records()[0].tools == [
        {"type": "function", "function": {k: v for k, v in TOOL.items() if k != "type"}}
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_is_an_item(
    bench_of: Callable[[ChatFormat], Bench], thinking_chat: ChatFormat, stream: bool
) -> None:
    bench = bench_of(thinking_chat)
    bench.say("<think>\nHm.\n</think>\n\nhello")
    ticket = bench.server.open_rollout(bench.name, mode="train")
    with openai.OpenAI(base_url=ticket.base_url, api_key="any") as client:
        if stream:
            events = respond_streaming(client)
            response = events[-1].response
            deltas = [e.delta for e in events if e.type == "response.reasoning_text.delta"]
            assert "".join(deltas) == "Hm."
        else:
            response = respond(client)
    reasoning, message = response.output
    assert reasoning.content[0].text == "Hm."
    assert message.content[0].text == "hello"


def test_an_engine_that_fails_in_a_stream(bench: Bench, client: openai.OpenAI) -> None:
    bench.do(bench.spell("some"), EngineDiedError("out of memory"))
    with pytest.raises(openai.APIError, match="out of memory"):
        respond_streaming(client)
    (record,) = bench.all_records()
    assert record.status is CompletionStatus.FAILED


def test_leaving_a_stream(bench: Bench, client: openai.OpenAI) -> None:
    hold = Hold()
    bench.do(bench.spell("some"), hold, [bench.end])
    create: Any = client.responses.create
    with create(model="m", input="hi", stream=True) as stream:
        next(iter(stream))
    eventually(lambda: len(bench.all_records()) == 1)
    assert bench.all_records()[0].status is CompletionStatus.ABANDONED


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"type": "computer_call"}]}, "input[0]"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"conversation": "c"}, "conversation"),
        ({"n": 2}, "n"),
        ({"messages": []}, "messages"),
    ],
)
def test_what_it_cannot_do_is_named(
    http: httpx.Client, ticket: RolloutTicket, fields: dict[str, Any], param: str
) -> None:
    body = {"model": "m", "input": "hi", **fields}
    response = http.post(f"{ticket.base_url}/responses", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_an_image_cannot_be_given_to_a_text_model(client: openai.OpenAI) -> None:
    image = {"type": "input_image", "image_url": "data:x"}
    with pytest.raises(openai.BadRequestError, match="input_image"):
        respond(client, [{"role": "user", "content": [image]}])
