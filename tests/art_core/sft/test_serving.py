"""A conversation that is learned has the tokens of the same conversation when it's sampled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from art_core.gateway import GatewayServer
from art_core.runs.records import RecordStore
from art_core.sft.conversations import cut_row, is_answer, token_rows
from art_core.trajectories import build_histories
from tests.art_core.chat.templates import Template
from tests.art_core.gateway.scripted import Bench
from tests.art_core.sft.conftest import TOOL, conversation

_numbers = itertools.count()
FAMILIES = [
    *("qwen3", "qwen2_5", "qwen3_5_nothink", "llama3_2", "gptoss", "glm4moe", "phi3", "gemma3"),
    *("muse_glimmer", "qwen3_8", "lfm2", "gemma4"),
]


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayServer]:
    server = GatewayServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def records(tmp_path: Path) -> Iterator[RecordStore]:
    store = RecordStore(tmp_path / "records.sqlite")
    yield store
    store.close()


def play(bench: Bench, messages: list[Any], tools: list[Any] | None) -> str:
    """An agent has this conversation with a model that says its answers; the rollout's id."""
    ticket = bench.server.open_rollout(bench.name, mode="train", seed=1)
    sent: list[Any] = []
    ids: dict[str, str] = {}
    with openai.OpenAI(base_url=ticket.base_url, api_key="any", max_retries=0) as client:
        for at, message in enumerate(messages):
            if not is_answer(message):
                renamed = ids.get(message.get("tool_call_id", ""))
                sent.append({**message, "tool_call_id": renamed} if renamed else message)
                continue
            said = bench.chat.answer(messages[:at], message, tools)
            bench.do(*([token] for token in said))
            create: Any = client.chat.completions.create
            reply = create(model="m", messages=sent, **({"tools": tools} if tools else {}))
            answer = reply.choices[0].message
            sent.append(answer.model_dump(exclude_none=True))
            for given, made in zip(
                message.get("tool_calls") or [], answer.tool_calls or [], strict=True
            ):
                ids[given["id"]] = made.id
    bench.server.close_rollout(ticket.rollout_id)
    return ticket.rollout_id


MESSAGES: dict[str, tuple[list[Any], list[Any] | None]] = {
    "turns": (
        [
            {"role": "user", "content": "Hello, what is the time?"},
            {"role": "assistant", "content": "It is noon."},
            {"role": "user", "content": "And in Rome?"},
            {"role": "assistant", "content": "One."},
        ],
        None,
    ),
    "tools": (conversation(7)["messages"], [TOOL]),
}


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("family", FAMILIES)
def test_learned_as_sampled(
    family: str,
    name: str,
    all_templates: dict[str, Template],
    gateway: GatewayServer,
    records: RecordStore,
) -> None:
    chat = all_templates[family].chat
    messages, tools = MESSAGES[name]
    bench = Bench(gateway, f"sft-{next(_numbers)}", chat, records)
    rollout = play(bench, messages, tools)
    sampled = [
        cut_row(history.token_ids, history.loss_mask)
        for history in build_histories(records.by_rollout(rollout))
    ]
    assert token_rows(chat, messages, tools, [is_answer(m) for m in messages]) == sampled
