"""Bad requests: each is answered in OpenAI's shape, with the field's name and a way out."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from art_core.chat import ChatFormat
from art_core.errors import (
    AdapterError,
    ContextLengthError,
    EngineDiedError,
    EngineError,
    EngineOverloadedError,
    GrammarError,
)
from art_core.gateway import GatewayServer
from art_core.rollouts.backend import RolloutTicket
from art_core.runs.records import RecordStore
from art_core.trajectories import CompletionStatus
from tests.art_core.gateway.scripted import Bench, ask_streaming, user

CHAT = {"model": "m", "messages": [user("hi")]}


def post(
    http: httpx.Client, ticket: RolloutTicket, body: object, path: str = "/chat/completions"
) -> httpx.Response:
    url = ticket.base_url + path
    if isinstance(body, bytes):
        return http.post(url, content=body, headers={"content-type": "application/json"})
    return http.post(url, json=body)


def error_of(response: httpx.Response) -> dict[str, Any]:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize("body", [b"", b"{", b"[1", b'{"model": }', b"\xff\xfe", b'"\\ud800"'])
def test_malformed_json(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket, body: bytes
) -> None:
    response = post(http, ticket, body)
    assert response.status_code == 400
    assert error_of(response)["code"] == "invalid_json"
    assert "The request's body isn't JSON" in error_of(response)["message"]


@pytest.mark.parametrize("body", [b"[]", b"3", b"null", b'"hi"'])
def test_json_that_is_no_object(http: httpx.Client, ticket: RolloutTicket, body: bytes) -> None:
    response = post(http, ticket, body)
    assert response.status_code == 400
    assert error_of(response)["message"] == "The body isn't a JSON object."


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [3]}, "messages[0]"),
    ({"model": 3}, "model"),
    ({"model": None}, "model"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.5}, "top_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": "10"}, "max_tokens"),
    ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
    ({"n": 0}, "n"),
    ({"n": 1000}, "n"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop": 3}, "stop"),
    ({"seed": "x"}, "seed"),
    ({"seed": 2**70}, "seed"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": 3}, "stream_options"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"logit_bias": {"x": 1}}, "logit_bias.x"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5"),
    ({"logit_bias": {"300": 1}}, "logit_bias"),
    ({"tools": {}}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
    ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
    ({"tool_choice": "sometimes"}, "tool_choice"),
    ({"response_format": {"type": "grammar"}}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format.schema"),
    ({"response_format": "json"}, "response_format"),
    ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ({"modalities": ["audio"]}, "modalities"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"unheard_of": 1}, "unheard_of"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG, ids=lambda value: str(value)[:40])
def test_wrong_fields_are_named(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket, fields: dict[str, Any], param: str
) -> None:
    bench.say("x")
    response = post(http, ticket, {**CHAT, **fields})
    error = error_of(response)
    assert response.status_code == 400
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert param in error["message"]
    assert bench.engine.served == []


@pytest.mark.parametrize("field", ["model", "messages"])
def test_missing_fields_are_named(http: httpx.Client, ticket: RolloutTicket, field: str) -> None:
    body = {key: value for key, value in CHAT.items() if key != field}
    error = error_of(post(http, ticket, body))
    assert error == {
        "message": f"{field}: is missing",
        "type": "invalid_request_error",
        "param": field,
        "code": "missing_required_parameter",
    }


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"role": "robot", "content": "hi"}, "messages[1] has role 'robot'"),
        ({"content": "hi"}, "messages[1] has role None"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            "messages[1].content[0] is of type 'image_url'",
        ),
        ({"role": "tool", "tool_call_id": "c", "content": "x"}, "messages[1] is a tool result"),
    ],
)
def test_messages_without_a_meaning_are_named(
    http: httpx.Client,
    bench: Bench,
    ticket: RolloutTicket,
    message: dict[str, Any],
    complaint: str,
) -> None:
    response = post(http, ticket, {**CHAT, "messages": [user("hi"), message]})
    assert response.status_code == 400
    assert complaint in error_of(response)["message"]


def test_a_body_that_is_too_large(bench: Bench) -> None:
    server = GatewayServer(max_body_bytes=1000)
    server.start()
    with httpx.Client() as http:
        url = f"{server.url}/v1/chat/completions"
        announced = http.post(url, content=b"x" * 2000)
        chunked = http.post(url, content=(b"x" * 100 for _ in range(20)))
    server.stop()
    for response in (announced, chunked):
        assert response.status_code == 413
        assert "more than 1000 bytes" in error_of(response)["message"]


def test_an_unknown_path_and_a_wrong_method(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket
) -> None:
    unknown = post(http, ticket, CHAT, "/embeddings")
    assert unknown.status_code == 404
    assert "/v1/embeddings isn't served here" in error_of(unknown)["message"]
    assert http.get(f"{ticket.base_url}/chat/completions").status_code == 405


REFUSALS: list[tuple[Exception, int, str]] = [
    (ContextLengthError("the prompt has 9 tokens, the context 8"), 400, "context_length_exceeded"),
    (EngineOverloadedError("64 requests wait"), 429, "engine_overloaded"),
    (AdapterError("bot@3 isn't loaded"), 404, "model_not_found"),
    (GrammarError("the grammar can't be used"), 400, "invalid_grammar"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "status", "code"), REFUSALS, ids=lambda value: str(value)[:20])
def test_what_the_engine_refuses_is_not_recorded(
    http: httpx.Client,
    bench: Bench,
    ticket: RolloutTicket,
    error: Exception,
    status: int,
    code: str,
    stream: bool,
) -> None:
    bench.do(error)
    response = post(http, ticket, {**CHAT, "stream": stream})
    assert (response.status_code, error_of(response)["code"]) == (status, code)
    assert error_of(response)["message"] == str(error)
    assert (response.headers.get("retry-after") == "1") == (status == 429)
    assert bench.all_records() == []


FAILURES: list[tuple[Exception, int]] = [
    (EngineDiedError("out of memory"), 503),
    (EngineError("ended oddly"), 500),
    (ZeroDivisionError("a bug"), 500),
]


@pytest.mark.parametrize(("error", "status"), FAILURES, ids=lambda value: str(value)[:20])
def test_a_failing_engine_leaves_a_failed_record(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket, error: Exception, status: int
) -> None:
    bench.do(bench.spell("a b"), error)
    response = post(http, ticket, CHAT)
    assert response.status_code == status
    assert str(error) in error_of(response)["message"]
    (record,) = bench.all_records()
    assert record.status is CompletionStatus.FAILED
    assert record.completion_token_ids == bench.spell("a b")
    assert record.finish_reason == "failed"


def test_an_engine_that_fails_in_a_stream_is_an_error_to_its_client(
    bench: Bench, client: openai.OpenAI
) -> None:
    bench.do(bench.spell("a b"), EngineDiedError("out of memory"))
    with pytest.raises(openai.APIError, match="out of memory"):
        ask_streaming(client)
    (record,) = bench.all_records()
    assert record.status is CompletionStatus.FAILED


def test_one_failing_choice_fails_the_request(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket
) -> None:
    answers = iter([[bench.spell("ok"), [bench.end]], [bench.spell("x"), EngineError("no")]])
    bench.engine.script = lambda prompt, sampling: next(answers)
    assert post(http, ticket, {**CHAT, "n": 2}).status_code == 500
    statuses = sorted(record.status for record in bench.all_records())
    assert statuses == [CompletionStatus.ABANDONED, CompletionStatus.FAILED]


def test_an_engine_that_ends_without_a_reason_is_a_failure(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket
) -> None:
    bench.do()
    response = post(http, ticket, CHAT)
    assert response.status_code == 500
    assert "finish_reason None" in error_of(response)["message"]


def test_a_dead_engine_shows_in_the_health(
    http: httpx.Client, plain_chat: ChatFormat, records: RecordStore
) -> None:
    server = GatewayServer()
    server.start()
    bench = Bench(server, "bot", plain_chat, records)
    bench.do(EngineDiedError("out of memory"))
    assert http.get(f"{server.url}/health").status_code == 200
    assert http.post(f"{server.url}/v1/chat/completions", json={**CHAT, "model": "bot"})
    response = http.get(f"{server.url}/health")
    server.stop()
    assert response.status_code == 503
    assert response.json()["status"] == "engine_died"
    assert response.json()["engine_errors"] == {"bot": "out of memory"}


def test_a_record_that_cannot_be_written_is_an_error_that_names_the_file(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket
) -> None:
    bench.say("x")
    bench.records.close()
    for stream in (False, True):
        response = post(http, ticket, {**CHAT, "stream": stream})
        assert "[DONE]" not in response.text
        assert "records.sqlite is closed" in response.text
    assert post(http, ticket, CHAT).status_code == 507
