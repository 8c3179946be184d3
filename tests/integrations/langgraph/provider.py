"""An OpenAI-compatible server of the tests' own: the model that a graph's author hard-coded."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from tests.integrations.langgraph.script import Reply, marker_of, reply_to


class Provider(ThreadingHTTPServer):
    """Answers chat completions by script and keeps the requests it was sent."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    @property
    def base_url(self) -> str:
        return f"http://{self.host}/v1"


@contextmanager
def running_provider() -> Generator[Provider]:
    with Provider() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Keep the tests' output quiet."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        cast("Provider", self.server).requests.append(
            {"path": self.path, "headers": headers, "body": body}
        )
        messages = body["messages"]
        text = json.dumps(messages)
        last = messages[-1]
        reply = reply_to(last["role"], str(last["content"]), marker_of(text))
        if body.get("stream"):
            self._send("text/event-stream", _events(reply, body["model"]))
        else:
            self._send("application/json", json.dumps(_whole(reply, body["model"])).encode())

    def _send(self, kind: str, payload: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


def _message(reply: Reply) -> dict[str, Any]:
    if reply.tool is None:
        return {"role": "assistant", "content": reply.text}
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": reply.tool, "arguments": reply.arguments},
    }
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _envelope(kind: str, model: str, choice: dict[str, Any]) -> dict[str, Any]:
    return {"id": "cmpl-1", "object": kind, "created": 0, "model": model, "choices": [choice]}


def _whole(reply: Reply, model: str) -> dict[str, Any]:
    finish = "stop" if reply.tool is None else "tool_calls"
    choice = {"index": 0, "message": _message(reply), "finish_reason": finish}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {**_envelope("chat.completion", model, choice), "usage": usage}


def _events(reply: Reply, model: str) -> bytes:
    delta = _message(reply)
    for index, call in enumerate(delta.get("tool_calls", [])):
        call["index"] = index
    finish = "stop" if reply.tool is None else "tool_calls"
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": delta, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": finish},
    ]
    lines = [json.dumps(_envelope("chat.completion.chunk", model, choice)) for choice in choices]
    return "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()
