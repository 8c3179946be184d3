"""The agent: an ordinary script, against a model server and a real index."""

from __future__ import annotations

import ast
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from art_core.demo import agent
from art_core.demo.agent import INSTRUCTIONS, find_function, search


@dataclass
class ScriptedModel:
    """An OpenAI-compatible chat endpoint that gives the replies in turn."""

    replies: list[str]
    base_url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(body)
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {
                        "role": "assistant",
                        "content": self.replies[len(self.requests) - 1],
                    },
                }
            ],
        }


@pytest.fixture
def scripted_model() -> Generator[ScriptedModel]:
    model = ScriptedModel(replies=[])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            payload = json.dumps(model.answer(body)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    model.base_url = f"http://127.0.0.1:{server.server_port}/v1"
    yield model
    server.shutdown()
    server.server_close()
    thread.join()


def test_imports_nothing_of_ours() -> None:
    tree = ast.parse(Path(agent.__file__).read_text())
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert "openai" in imported
    assert not {name for name in imported if name.split(".")[0] in ("art_core", "integrations")}


async def test_asks_searches_shows_and_asks_again(
    corpus_index: Path, scripted_model: ScriptedModel
) -> None:
    scripted_model.replies = ["shorten text to a width", "It is `textwrap.shorten`."]
    async with AsyncOpenAI(base_url=scripted_model.base_url, api_key="-") as client:
        finding = await find_function(client, corpus_index, "What shortens text?")
    assert finding.query == "shorten text to a width"
    assert "textwrap.shorten" in finding.pages
    assert finding.answer == "It is `textwrap.shorten`."
    first, second = (request["messages"] for request in scripted_model.requests)
    assert first == [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": "What shortens text?"},
    ]
    assert second[:2] == first, "the second turn continues the first conversation"
    assert second[2] == {"role": "assistant", "content": finding.query}
    assert all(page in second[3]["content"] for page in finding.pages)


async def test_says_so_when_nothing_is_found(
    corpus_index: Path, scripted_model: ScriptedModel
) -> None:
    scripted_model.replies = ["?!", "none"]
    async with AsyncOpenAI(base_url=scripted_model.base_url, api_key="-") as client:
        finding = await find_function(client, corpus_index, "What?")
    assert finding.pages == []
    assert "Found: nothing." in scripted_model.requests[1]["messages"][3]["content"]


def test_runs_as_a_script(corpus_index: Path, scripted_model: ScriptedModel) -> None:
    scripted_model.replies = ["greatest common divisor", "math.gcd"]
    result = subprocess.run(
        [sys.executable, agent.__file__, str(corpus_index), "What divides both?"],
        env={**os.environ, "OPENAI_BASE_URL": scripted_model.base_url, "OPENAI_API_KEY": "-"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "answer: math.gcd" in result.stdout


class TestSearch:
    def test_any_word_is_enough_and_the_best_match_is_first(self, corpus_index: Path) -> None:
        found = search(corpus_index, "zzz greatest common divisor qqq")
        assert found[0] == "math.gcd"
        assert len(found) == 5

    def test_a_name_in_code_is_looked_for_as_a_whole(self, corpus_index: Path) -> None:
        assert search(corpus_index, "get_alive_threads") == []
        assert "sys.is_finalizing" in search(corpus_index, "the is_finalizing function")

    @pytest.mark.parametrize(
        "query", ['"', "NEAR(", "name:*", "a OR b AND NOT c", "^x", "-", "", "naïve 'quoted' text*"]
    )
    def test_text_is_never_query_syntax(self, corpus_index: Path, query: str) -> None:
        assert isinstance(search(corpus_index, query), list)

    def test_never_writes(self, tmp_path: Path) -> None:
        with pytest.raises(sqlite3.OperationalError):
            search(tmp_path / "absent.sqlite", "word")
        assert not (tmp_path / "absent.sqlite").exists()
