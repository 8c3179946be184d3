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
    """Answers chat completions by script and keeps the requests it was sent.

    With ``fail_first`` the first is answered with that status, and to come again at once.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, *, fail_first: int | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.fail_first = fail_first

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    @property
    def base_url(self) -> str:
        return f"http://{self.host}/v1"


@contextmanager
def running_provider(*, fail_first: int | None = None) -> Generator[Provider]:
    with Provider(fail_first=fail_first) as server:
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
        provider = cast("Provider", self.server)
        provider.requests.append({"path": self.path, "headers": headers, "body": body})
        if provider.fail_first and len(provider.requests) == 1:
            self._send("application/json", b'{"error": {"message": "busy"}}', provider.fail_first)
            return
        messages = body["messages"]
        text = json.dumps(messages)
        last = messages[-1]
        reply = reply_to(last["role"], str(last["content"]), marker_of(text))
        if body.get("stream"):
            options: dict[str, Any] = body.get("stream_options") or {}
            events = _events(reply, body["model"], usage=options.get("include_usage", False))
            self._send("text/event-stream", events)
        else:
            self._send("application/json", json.dumps(_whole(reply, body["model"])).encode())

    def _send(self, kind: str, payload: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status != 200:
            self.send_header("Retry-After-Ms", "1")
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


_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def _whole(reply: Reply, model: str) -> dict[str, Any]:
    finish = "stop" if reply.tool is None else "tool_calls"
    choice = {"index": 0, "message": _message(reply), "finish_reason": finish}
    return {**_envelope("chat.completion", model, choice), "usage": _USAGE}


def _events(reply: Reply, model: str, *, usage: bool) -> bytes:
    delta = _message(reply)
    for index, call in enumerate(delta.get("tool_calls", [])):
        call["index"] = index
    finish = "stop" if reply.tool is None else "tool_calls"
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": delta, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": finish},
    ]
    chunks = [_envelope("chat.completion.chunk", model, choice) for choice in choices]
    if usage:
        chunks.append({**chunks[-1], "choices": [], "usage": _USAGE})
    lines = [json.dumps(chunk) for chunk in chunks]
    return "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()
