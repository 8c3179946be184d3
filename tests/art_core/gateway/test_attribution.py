"""Which rollout a call belongs to: by URL, header or key; never by guess."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from art_core.chat import ChatFormat
from art_core.engines.protocol import AdapterRef
from art_core.errors import ConfigError, GatewayError, UnknownModelError
from art_core.gateway import ROLLOUT_HEADER, GatewayServer
from art_core.rollouts.backend import RolloutTicket
from art_core.runs.records import RecordStore
from tests.art_core.gateway.scripted import Bench, ask, extra, user

BODY = {"model": "gpt-4o", "messages": [user("hi")]}


def call(
    http: httpx.Client, base: str, key: str | None = None, rollout: str | None = None, **more: Any
) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    if rollout:
        headers[ROLLOUT_HEADER] = rollout
    return http.post(f"{base}/chat/completions", json={**BODY, **more}, headers=headers)


def rollout_of(bench: Bench, response: httpx.Response) -> str | None:
    assert response.status_code == 200, response.text
    return bench.record_of(response.json()["choices"][0]["completion_id"]).rollout_id


@pytest.fixture
def plain_url(bench: Bench) -> str:
    bench.say("x")
    return f"{bench.server.url}/v1"


def test_by_url(http: httpx.Client, bench: Bench, ticket: RolloutTicket, plain_url: str) -> None:
    assert rollout_of(bench, call(http, ticket.base_url)) == ticket.rollout_id


def test_by_header(http: httpx.Client, bench: Bench, ticket: RolloutTicket, plain_url: str) -> None:
    by_headers = http.post(f"{plain_url}/chat/completions", json=BODY, headers=dict(ticket.headers))
    assert rollout_of(bench, by_headers) == ticket.rollout_id
    by_id = call(http, plain_url, rollout=ticket.rollout_id)
    assert rollout_of(bench, by_id) == ticket.rollout_id


def test_by_key(http: httpx.Client, bench: Bench, ticket: RolloutTicket, plain_url: str) -> None:
    assert rollout_of(bench, call(http, plain_url, key=ticket.api_key)) == ticket.rollout_id
    as_anthropic = http.post(
        f"{plain_url}/chat/completions", json=BODY, headers={"x-api-key": ticket.api_key}
    )
    assert rollout_of(bench, as_anthropic) == ticket.rollout_id


def test_url_before_header_before_key(http: httpx.Client, bench: Bench, plain_url: str) -> None:
    one, two, three = (bench.server.open_rollout(bench.name, mode="train") for _ in range(3))
    url = call(http, one.base_url, key=three.api_key, rollout=two.rollout_id)
    assert rollout_of(bench, url) == one.rollout_id
    header = call(http, plain_url, key=three.api_key, rollout=two.rollout_id)
    assert rollout_of(bench, header) == two.rollout_id


def test_a_call_that_names_no_rollout_is_served_and_quarantined(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket, plain_url: str
) -> None:
    before = bench.server.quarantined
    response = call(http, plain_url, key="sk-whatever", model=bench.name)
    assert rollout_of(bench, response) is None
    assert bench.server.quarantined == before + 1
    assert bench.records.quarantined() == 1
    health = http.get(f"{bench.server.url}/health").json()
    assert health["quarantined"] == bench.server.quarantined
    assert bench.server.close_rollout(ticket.rollout_id) == []
    (record,) = bench.all_records()
    assert not record.may_be_trained


def test_the_first_call_that_names_none_of_the_open_rollouts_is_reported(
    http: httpx.Client, bench: Bench, plain_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    call(http, plain_url, model=bench.name)
    assert caplog.messages == []  # there was no rollout that it could have belonged to
    bench.server.open_rollout(bench.name, mode="train")
    for _ in range(3):
        call(http, plain_url, model=bench.name)
    (said,) = caplog.messages
    assert f"a call to '{bench.name}' names no rollout" in said


def test_outside_a_rollout_an_unknown_model_is_an_error_that_lists_what_there_is(
    http: httpx.Client, bench: Bench, plain_url: str
) -> None:
    response = call(http, plain_url)
    error = response.json()["error"]
    assert response.status_code == 404
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "model 'gpt-4o' does not exist. Served here: " in error["message"]
    assert f"{bench.name}, {bench.name}@0" in error["message"]
    assert bench.all_records() == []


@pytest.mark.parametrize("way", ["url", "header", "id header", "key"])
def test_a_closed_rollout_is_an_error_that_says_so(
    http: httpx.Client, bench: Bench, ticket: RolloutTicket, plain_url: str, way: str
) -> None:
    bench.server.close_rollout(ticket.rollout_id)
    response = {
        "url": lambda: call(http, ticket.base_url),
        "header": lambda: call(http, plain_url, rollout=ticket.api_key, model=bench.name),
        "id header": lambda: call(http, plain_url, rollout=ticket.rollout_id, model=bench.name),
        "key": lambda: call(http, plain_url, key=ticket.api_key, model=bench.name),
    }[way]()
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (404, "rollout_not_open")
    assert ticket.rollout_id in error["message"]
    assert "is not open" in error["message"]
    assert bench.all_records() == []


@pytest.mark.parametrize("name", ["nonsense", "..", "%2e%2e", "a%2Fb", "x" * 5000])
def test_a_rollout_that_never_was(http: httpx.Client, bench: Bench, name: str) -> None:
    response = call(http, f"{bench.server.url}/r/{name}/v1")
    assert response.status_code == 404


def test_rollouts_keep_the_version_they_were_opened_with(
    http: httpx.Client, bench: Bench, plain_url: str
) -> None:
    old = bench.server.open_rollout(bench.name, mode="train")
    bench.server.set_adapter(bench.name, AdapterRef(bench.name, 7))
    new = bench.server.open_rollout(bench.name, mode="train")
    assert (old.policy_version, new.policy_version) == (0, 7)
    versions = [call(http, each.base_url).json()["policy_version"] for each in (old, new, old)]
    assert versions == [0, 7, 0]
    adapters = [served.adapter for served in bench.engine.served]
    assert adapters == [None, AdapterRef(bench.name, 7), None]
    assert [record.policy_version for record in bench.all_records()] != [0, 0, 0]


def test_versions_by_name(http: httpx.Client, bench: Bench, plain_url: str) -> None:
    bench.server.set_adapter(bench.name, AdapterRef(bench.name, 3))
    ask = [bench.name, f"{bench.name}@0", f"{bench.name}@3"]
    versions = [call(http, plain_url, model=name).json()["policy_version"] for name in ask]
    assert versions == [3, 0, 3]
    for wrong in (f"{bench.name}@1", f"{bench.name}@x", "@0", f"{bench.name}@"):
        assert call(http, plain_url, model=wrong).status_code == 404


def test_versions_are_retired_once_no_rollout_needs_them(bench: Bench) -> None:
    server, name = bench.server, bench.name
    ticket = server.open_rollout(name, mode="train")
    server.set_adapter(name, AdapterRef(name, 1))
    server.set_adapter(name, AdapterRef(name, 2))
    assert server.unused_versions(name) == [1]
    with pytest.raises(ConfigError, match=f"open rollouts are pinned to {name}@0"):
        server.retire_version(name, 0)
    with pytest.raises(ConfigError, match=f"{name}@2 is the version being served"):
        server.retire_version(name, 2)
    server.close_rollout(ticket.rollout_id)
    for version in server.unused_versions(name):
        server.retire_version(name, version)
    assert bench.policy.model_names() == [name, f"{name}@2"]


def test_models(bench: Bench, ticket: RolloutTicket) -> None:
    with openai.OpenAI(base_url=f"{bench.server.url}/v1", api_key="x") as client:
        ids = [model.id for model in client.models.list()]
        assert {bench.name, f"{bench.name}@0"} <= set(ids)
        assert client.models.retrieve(f"{bench.name}@0").id == f"{bench.name}@0"
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            client.models.retrieve("gpt-4o")
    with openai.OpenAI(base_url=ticket.base_url, api_key="x") as client:
        assert [model.id for model in client.models.list()] == [bench.name, f"{bench.name}@0"]
        assert client.models.retrieve("gpt-4o").id == "gpt-4o"


def test_unknown_names_and_rollouts(bench: Bench) -> None:
    with pytest.raises(UnknownModelError, match="no policy is named 'nobody'"):
        bench.server.open_rollout("nobody", mode="train")
    with pytest.raises(UnknownModelError, match="no policy is named 'nobody'"):
        bench.server.set_adapter("nobody", None)
    with pytest.raises(GatewayError, match="rollout 'r' isn't open"):
        bench.server.close_rollout("r")
    with pytest.raises(ConfigError, match="is already served"):
        bench.server.add_policy(bench.policy)


@pytest.fixture
def locked(tmp_path: Path, plain_chat: ChatFormat) -> Iterator[Bench]:
    """A gateway that asks for a key."""
    server = GatewayServer(api_key="secret")
    server.start()
    records = RecordStore(tmp_path / "locked.sqlite")
    bench = Bench(server, "bot", plain_chat, records)
    bench.say("x")
    yield bench
    server.stop()
    records.close()


def test_a_key_is_needed_where_one_is_set(http: httpx.Client, locked: Bench) -> None:
    ticket = locked.server.open_rollout("bot", mode="train")
    other = locked.server.open_rollout("bot", mode="train")
    plain = f"{locked.server.url}/v1"
    allowed = [
        call(http, plain, key="secret", model="bot"),
        call(http, plain, key=ticket.api_key),
        call(http, plain, key="anything", rollout=ticket.api_key),
        call(http, plain, key="secret", rollout=ticket.rollout_id),
        call(http, ticket.base_url, key="secret"),
        call(http, ticket.base_url, key=ticket.api_key),
    ]
    refused = [
        call(http, plain, model="bot"),
        call(http, plain, key="wrong", model="bot"),
        http.post(f"{plain}/chat/completions", json=BODY, headers=[(b"x-api-key", b"\xe9")]),
        call(http, plain, rollout=ticket.rollout_id),
        call(http, ticket.base_url),
        call(http, ticket.base_url, key="wrong"),
        call(http, ticket.base_url, key=other.api_key),
        call(http, ticket.base_url, key=ticket.api_key[:-1] + "!"),
        http.get(f"{plain}/models"),
    ]
    assert [response.status_code for response in allowed] == [200] * len(allowed)
    assert [response.status_code for response in refused] == [401] * len(refused)
    assert refused[0].json()["error"]["type"] == "authentication_error"
    owners = [record.rollout_id for record in locked.all_records()]
    assert owners == [None] + [ticket.rollout_id] * 5


def test_health_tells_strangers_little(http: httpx.Client, locked: Bench) -> None:
    url = f"{locked.server.url}/health"
    assert http.get(url).json() == {"status": "ok"}
    known = http.get(url, headers={"authorization": "Bearer secret"}).json()
    assert known["policies"] == {"bot": 0}


def test_many_rollouts_at_once_cross_nothing(bench: Bench) -> None:
    """32 agents in threads, each with its own client; some say who they are by key alone."""
    bench.engine.script = lambda prompt, sampling: (
        [[token] for token in prompt[-5:]] + [[bench.end]]
    )

    def play(number: int) -> tuple[str, list[str]]:
        ticket = bench.server.open_rollout(bench.name, mode="train", seed=number)
        base = ticket.base_url if number % 2 else f"{bench.server.url}/v1"
        ids: list[str] = []
        with openai.OpenAI(base_url=base, api_key=ticket.api_key, max_retries=0) as client:
            messages: list[dict[str, Any]] = [user(f"agent {number}")]
            for turn in range(3):
                answer = ask(client, *messages)
                message = answer.choices[0].message
                ids.append(extra(answer.choices[0], "completion_id"))
                messages += [message.model_dump(exclude_none=True), user(f"{number}/{turn}")]
        return ticket.rollout_id, ids

    with ThreadPoolExecutor(32) as pool:
        played = dict(pool.map(play, range(32)))
    for rollout_id, ids in played.items():
        completions = bench.server.close_rollout(rollout_id)
        assert [each.id for each in completions] == ids
        assert bench.records.by_rollout(rollout_id) == completions
        assert len({str(each.messages[0]) for each in completions}) == 1
    assert len(bench.records) == 32 * 3
