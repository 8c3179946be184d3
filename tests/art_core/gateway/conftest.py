"""One gateway for all tests of the folder; each test has a policy of its own on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import httpx
import openai
import pytest

from art_core.chat import ChatFormat, chat_format_for
from art_core.gateway import GatewayServer
from art_core.rollouts.backend import RolloutTicket
from art_core.runs.records import RecordStore
from tests.art_core.chat.templates import make_metaspace_tokenizer
from tests.art_core.gateway.scripted import Bench, make_chat

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_numbers = itertools.count()


@pytest.fixture(scope="session")
def gateway() -> Iterator[GatewayServer]:
    server = GatewayServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def plain_chat() -> ChatFormat:
    """ChatML without tools or reasoning."""
    return make_chat(CHATML)


@pytest.fixture(scope="session")
def byte_chat() -> ChatFormat:
    """ChatML over a SentencePiece-style tokenizer, most of whose tokens are single bytes."""
    return chat_format_for(make_metaspace_tokenizer(CHATML))


@pytest.fixture(scope="session")
def tool_chat() -> ChatFormat:
    """Qwen3's real template: tools between tags, no reasoning."""
    return make_chat(files("trl").joinpath("chat_templates/qwen3_instruct_2507.jinja").read_text())


@pytest.fixture(scope="session")
def thinking_chat() -> ChatFormat:
    """Qwen3's real template that drops the reasoning of earlier turns."""
    return make_chat(files("trl").joinpath("chat_templates/qwen3.jinja").read_text())


@pytest.fixture
def records(tmp_path: Path) -> Iterator[RecordStore]:
    store = RecordStore(tmp_path / "records.sqlite")
    yield store
    store.close()


@pytest.fixture
def bench_of(gateway: GatewayServer, records: RecordStore) -> Callable[[ChatFormat], Bench]:
    return lambda chat: Bench(gateway, f"policy-{next(_numbers)}", chat, records)


@pytest.fixture
def bench(bench_of: Callable[[ChatFormat], Bench], plain_chat: ChatFormat) -> Bench:
    return bench_of(plain_chat)


@pytest.fixture
def tool_bench(bench_of: Callable[[ChatFormat], Bench], tool_chat: ChatFormat) -> Bench:
    return bench_of(tool_chat)


@pytest.fixture
def ticket(bench: Bench) -> RolloutTicket:
    return bench.server.open_rollout(bench.name, mode="train", seed=1)


@pytest.fixture
def client(ticket: RolloutTicket) -> Iterator[openai.OpenAI]:
    """OpenAI's own client in a rollout of `bench`."""
    with openai.OpenAI(base_url=ticket.base_url, api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=30) as http:
        yield http
