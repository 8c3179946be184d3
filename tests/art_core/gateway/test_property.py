"""Whatever is sampled and whatever clients do: trained is what was sampled and completed.

The engine samples arbitrary ids, not only such as a tokenizer would produce; the
client re-serialises, retries, branches, edits, drops and hangs up.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from art_core.chat import ChatFormat
from art_core.errors import EngineError
from art_core.gateway import GatewayServer
from art_core.runs.records import RecordStore
from art_core.trajectories import Completion, History, build_histories
from tests.art_core.gateway.scripted import Bench, Hold, Served, Step, user

VOCABULARY = 269
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "f", "arguments": {"x":1.0 , "y": "\\u00e9"}}\n</tool_call>'

Triple = tuple[tuple[int, ...], int, float]
"""All that came before a token, the token, and its logprob."""

_names = itertools.count()


@dataclass(frozen=True)
class Sample:
    """What the engine does for one choice."""

    token_ids: list[int]
    says: str
    """Text in front of the ids: some of it reads as tool calls."""
    ends: bool
    """With the end of turn; else it just runs out."""
    chunk: int
    fails: bool = False


@dataclass(frozen=True)
class Act:
    """What the client does next."""

    kind: str
    """``new``, ``go on`` from any state, or ``retry`` the last request."""
    state: int
    """Which conversation it goes on from."""
    rewrite: str
    """What becomes of our messages on the way back."""
    stream: bool
    leave: bool
    """Hang up in the middle."""
    stop: bool
    max_tokens: int | None
    tools: bool
    samples: list[Sample]


samples = st.builds(
    Sample,
    token_ids=st.lists(st.integers(0, VOCABULARY - 1), max_size=8),
    says=st.sampled_from(["", "", "hello", "S", CALL, "text " + CALL, CALL + CALL[:-5]]),
    ends=st.booleans(),
    chunk=st.integers(1, 4),
    fails=st.sampled_from([False] * 7 + [True]),
)
acts = st.builds(
    Act,
    kind=st.sampled_from(["new", "go on", "go on", "go on", "retry"]),
    state=st.integers(0, 99),
    rewrite=st.sampled_from(["nothing", "json", "nulls", "minimal", "edited", "dropped"]),
    stream=st.booleans(),
    leave=st.sampled_from([False] * 5 + [True]),
    stop=st.booleans(),
    max_tokens=st.sampled_from([None, None, 1, 3]),
    tools=st.booleans(),
    samples=st.lists(samples, min_size=1, max_size=2),
)


@dataclass
class Client:
    """Plays the acts, and remembers which samples it was answered with."""

    bench: Bench
    http: httpx.Client
    url: str
    states: list[list[dict[str, Any]]] = field(default_factory=list[list[dict[str, Any]]])
    answered: list[list[Served]] = field(default_factory=list[list[Served]])
    body: dict[str, Any] = field(default_factory=dict[str, Any])
    retries: int = 0
    was_answered: bool = False

    def play(self, act: Act) -> None:
        if act.kind == "retry" and self.body:
            self.retries += 1
            if self.was_answered:
                self.answered.pop()
        else:
            self.retries = 0
            self.body = self._new_body(act)
        leaves = act.leave and self.body["stream"] and self.body.get("max_tokens") != 1
        hold = Hold()
        scripts = [self._script(sample, leaves, hold) for sample in act.samples]
        scripts += [[[self.bench.end]]] * 2  # a retry may ask for more choices than this act
        self.bench.engine.script = lambda prompt, sampling: scripts.pop(0)
        before = len(self.bench.engine.served)
        messages = self._leave() if leaves else self._ask()
        hold.release()
        self.was_answered = messages is not None
        if messages is not None:
            self.answered.append(self.bench.engine.served[before:])
            self.states += [[*self.body["messages"], message] for message in messages]

    def _new_body(self, act: Act) -> dict[str, Any]:
        messages = [user(f"task {act.state % 2}")]
        if act.kind != "new" and self.states:
            messages = rewritten(self.states[act.state % len(self.states)], act.rewrite)
            calls: list[Any] = messages[-1].get("tool_calls") or []
            results = [{"role": "tool", "tool_call_id": c["id"], "content": "r"} for c in calls]
            messages = [*messages, *(results or [user("go on")])]
        body: dict[str, Any] = {
            "model": "m",
            "messages": messages,
            "stream": act.stream,
            "n": len(act.samples),
            "user": str(next(_names)),  # so that only a retry is one
        }
        if act.tools:
            body["tools"] = TOOLS
        if act.stop:
            body["stop"] = ["S", "lo"]
        if act.max_tokens:
            body["max_tokens"] = act.max_tokens
        return body

    def _script(self, sample: Sample, leaves: bool, hold: Hold) -> list[Step]:
        tokens = [*self.bench.marked(sample.says), *sample.token_ids] or [1]
        tokens = [token for token in tokens if token != self.bench.end] or [1]
        if sample.ends:
            tokens.append(self.bench.end)
        size = 1 if "stop" in self.body else sample.chunk
        steps: list[Step] = [tokens[at : at + size] for at in range(0, len(tokens), size)]
        if leaves:
            return [self.bench.spell("a"), hold, *steps]
        return [*steps[:1], EngineError("no more")] if sample.fails else steps

    @property
    def _headers(self) -> dict[str, str]:
        return {"x-stainless-retry-count": str(self.retries)}

    def _ask(self) -> list[dict[str, Any]] | None:
        response = self.http.post(self.url, json=self.body, headers=self._headers)
        if response.status_code != 200:
            assert response.status_code == 500, response.text
            return None
        if not self.body["stream"]:
            return [choice["message"] for choice in response.json()["choices"]]
        return streamed_messages(response.text, self.body["n"])

    def _leave(self) -> None:
        """Hang up after the beginning. The server notices before it gets the next request."""
        with self.http.stream("POST", self.url, json=self.body, headers=self._headers) as response:
            for _ in response.iter_raw():
                break
        for served in self.bench.engine.served:
            while served.ending == "running":
                self.http.get(self.url)


def streamed_messages(text: str, n: int) -> list[dict[str, Any]] | None:
    """The messages that a stream's deltas add up to, or None if it ends in an error."""
    *events, last = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    if last != "[DONE]":
        assert "error" in json.loads(last)
        return None
    contents = [""] * n
    calls: list[list[Any]] = [[] for _ in range(n)]
    for event in events:
        for choice in json.loads(event)["choices"]:
            contents[choice["index"]] += choice["delta"].get("content", "")
            calls[choice["index"]] += choice["delta"].get("tool_calls", [])
    return [
        {"role": "assistant", "content": content, **({"tool_calls": made} if made else {})}
        for content, made in zip(contents, calls, strict=True)
    ]


def rewritten(messages: list[dict[str, Any]], how: str) -> list[dict[str, Any]]:
    last = messages[-1]
    if how == "json" and last.get("tool_calls"):
        calls = [
            {
                **call,
                "function": {
                    **call["function"],
                    "arguments": json.dumps(json.loads(call["function"]["arguments"])),
                },
            }
            for call in last["tool_calls"]
        ]
        return [*messages[:-1], {**last, "tool_calls": calls}]
    if how == "nulls":
        return [*messages[:-1], {**last, "refusal": None, "audio": None, "annotations": []}]
    if how == "minimal":
        kept = ("role", "content", "tool_calls")
        return [*messages[:-1], {key: last[key] for key in kept if last.get(key)}]
    if how == "edited":
        return [user("another task"), *messages[1:]]
    if how == "dropped" and len(messages) > 3:
        return [messages[0], *messages[-1:]]
    return messages


def triples_of_samples(served: Iterable[Served]) -> Counter[Triple]:
    triples: Counter[Triple] = Counter()
    for each in served:
        tokens = each.prompt + each.token_ids
        for index, logprob in enumerate(each.logprobs):
            position = len(each.prompt) + index
            triples[tuple(tokens[:position]), tokens[position], logprob] += 1
    return triples


def triples_of_histories(histories: Iterable[History]) -> Counter[Triple]:
    triples: Counter[Triple] = Counter()
    for history in histories:
        for position, trained in enumerate(history.loss_mask):
            logprob = history.logprobs[position]
            if trained and logprob is not None:
                before = tuple(history.token_ids[:position])
                triples[before, history.token_ids[position], logprob] += 1
    return triples


def check_records(bench: Bench, completions: list[Completion]) -> None:
    """Every record is one of the engine's samples, and none is missing."""
    seen = [(each.prompt, each.token_ids, each.logprobs) for each in bench.engine.served]
    recorded = [
        (each.prompt_token_ids, each.completion_token_ids, each.logprobs) for each in completions
    ]
    assert sorted(recorded) == sorted(seen)


def check_play(gateway: GatewayServer, chat: ChatFormat, folder: Path, play: list[Act]) -> None:
    records = RecordStore(folder / "records.sqlite")
    bench = Bench(gateway, f"property-{next(_names)}", chat, records)
    ticket = gateway.open_rollout(bench.name, mode="train")
    with httpx.Client(timeout=30) as http:
        client = Client(bench, http, f"{ticket.base_url}/chat/completions")
        for act in play:
            client.play(act)
    completions = gateway.close_rollout(ticket.rollout_id)
    assert records.by_rollout(ticket.rollout_id) == completions
    records.close()
    check_records(bench, completions)
    answered = [served for request in client.answered for served in request]
    histories = build_histories(completions)
    assert triples_of_histories(histories) == triples_of_samples(answered)


@pytest.fixture(params=["plain", "tools", "bytes"])
def any_chat(
    request: pytest.FixtureRequest,
    plain_chat: ChatFormat,
    tool_chat: ChatFormat,
    byte_chat: ChatFormat,
) -> ChatFormat:
    return {"plain": plain_chat, "tools": tool_chat, "bytes": byte_chat}[request.param]


PLAYS = st.lists(acts, min_size=1, max_size=10)
QUIRKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=15, deadline=None, suppress_health_check=QUIRKS)
@given(play=PLAYS)
def test_trained_is_what_was_sampled_and_completed(
    gateway: GatewayServer,
    any_chat: ChatFormat,
    tmp_path_factory: pytest.TempPathFactory,
    play: list[Act],
) -> None:
    check_play(gateway, any_chat, tmp_path_factory.mktemp("records"), play)


@pytest.mark.long
@settings(max_examples=600, deadline=None, suppress_health_check=QUIRKS)
@given(play=PLAYS)
def test_trained_is_what_was_sampled_and_completed_many_times(
    gateway: GatewayServer,
    any_chat: ChatFormat,
    tmp_path_factory: pytest.TempPathFactory,
    play: list[Act],
) -> None:
    check_play(gateway, any_chat, tmp_path_factory.mktemp("records"), play)
