"""A fake judge behind real HTTP: grades by a rule, and misbehaves when told to.

By default a trajectory's score is the number after ``quality=`` in what it says. The
server finds trajectories and ids in the prompt by the prompt's own description of
itself, as a judge would.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Rule = Callable[[str], float]
Scores = dict[str, Any]


def by_quality(text: str) -> float:
    found = re.findall(r"quality=([0-9.]+)", text)
    return float(found[-1]) if found else 0.5


def recordings(prompt: str, system: str) -> dict[str, str]:
    """What each trajectory in a prompt says, by id (`recording` where it has none)."""
    nonce = re.search(r'"=== ([0-9a-f]+) begin"', system)
    assert nonce is not None, system
    mark = re.escape(nonce.group(1))
    block = re.compile(
        rf"^=== {mark} begin trajectory (\S+)[^\n]*\n(.*?)\n?^=== {mark} end$", re.M | re.S
    )
    return dict(block.findall(prompt))


class FakeJudge:
    """Answers `script`'s behaviours one after the other, then ``otherwise`` for ever."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.rule: Rule = by_quality
        self.script: list[str] = []
        self.otherwise = "good"
        self.requests: list[dict[str, Any]] = []
        self.at_once = 0
        self.most_at_once = 0
        self.delay = 0.0
        self.lock = threading.Lock()

    def next_behaviour(self, body: dict[str, Any]) -> str:
        with self.lock:
            self.requests.append(body)
            return self.script.pop(0) if self.script else self.otherwise

    def prompt(self, number: int = -1) -> str:
        return str(self.requests[number]["messages"][1]["content"])

    def system(self, number: int = -1) -> str:
        return str(self.requests[number]["messages"][0]["content"])

    def right_answer(self, body: dict[str, Any]) -> Scores:
        system, user = (body["messages"][index]["content"] for index in (0, 1))
        said = recordings(user, system)
        if '"winner"' in system:
            (a, x), (b, y) = ((name, self.rule(text)) for name, text in said.items())
            return {"explanation": "by rule", "winner": a if x > y else b if y > x else "tie"}
        keys = re.search(r"exactly these keys: (.*?)\. The value", system)
        assert keys is not None, system
        names = json.loads(f"[{keys.group(1)}]")
        alone = self.rule(next(iter(said.values())))
        scores = {name: self.rule(said[name]) if name in said else alone for name in names}
        return {
            name: {"explanation": f"by rule {score}", "score": score}
            for name, score in scores.items()
        }


def answer_text(behaviour: str, right: Scores) -> str:
    """The text of an answer that is wrong in the named way."""
    whole = json.dumps(right)
    first = next(iter(right))
    match behaviour:
        case "missing":
            return json.dumps(dict(list(right.items())[1:]))
        case "extra":
            return json.dumps({**right, "zzzzz": right[first]})
        case "duplicated":
            return whole[:-1] + f', "{first}": {json.dumps(right[first])}}}'
        case "out of range":
            return json.dumps({**right, first: {"explanation": "!", "score": 7}})
        case "negative":
            return json.dumps({**right, first: {"explanation": "!", "score": -0.1}})
        case "string":
            return json.dumps({**right, first: {"explanation": "!", "score": "0.5"}})
        case "bool":
            return json.dumps({**right, first: {"explanation": "!", "score": True}})
        case "nan":
            return json.dumps({**right, first: {"explanation": "!", "score": float("nan")}})
        case "infinite":
            return whole.replace(f'"score": {right[first]["score"]}', '"score": 1e999', 1)
        case "bare numbers":
            return json.dumps({name: one["score"] for name, one in right.items()})
        case "reordered":
            return json.dumps(dict(reversed(right.items())))
        case "prose":
            return f"Let me think.\n```json\n{whole}\n```\nThat is my verdict."
        case "reasoning":
            return f'<think>{{"{first}": {{"score": 1}}}} or so?</think>\n{whole}'
        case "two objects":
            return f"{whole}\n{whole}"
        case "truncated":
            return whole[: len(whole) // 2]
        case "wrong ids":
            return json.dumps({f"t{i}": one for i, one in enumerate(right.values())})
        case "list":
            return json.dumps([{"id": name, **one} for name, one in right.items()])
        case "words":
            return "The first one is best."
        case "deep":
            return '{"a":' * 50_000 + "}" * 50_000
        case "empty" | "refusal":
            return ""
        case _:
            return whole


class _Handler(BaseHTTPRequestHandler):
    judge: FakeJudge
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        judge = self.judge
        with judge.lock:
            judge.at_once += 1
            judge.most_at_once = max(judge.most_at_once, judge.at_once)
        try:
            time.sleep(judge.delay)
            self.answer(judge.next_behaviour(body), body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with judge.lock:
                judge.at_once -= 1

    def answer(self, behaviour: str, body: dict[str, Any]) -> None:
        if re.fullmatch(r"\d{3}( after \d+)?", behaviour):
            status, _, after = behaviour.partition(" after ")
            headers = {"retry-after": after} if after else {}
            error = {"message": f"status {status}", "type": "fake", "code": None}
            self.send(int(status), {"error": error}, headers)
        elif behaviour == "quota":
            error = {"message": "no money", "type": "fake", "code": "insufficient_quota"}
            self.send(429, {"error": error})
        elif behaviour == "hang":
            time.sleep(6)
            self.close_connection = True
        elif behaviour == "hang up":
            self.close_connection = True
        elif behaviour == "html":
            self.send_bytes(200, b"<html>hello</html>", {"content-type": "text/html"})
        elif behaviour == "trickle":
            self.trickle(json.dumps(self.completion("good", body)).encode())
        else:
            self.send(200, self.completion(behaviour, body))

    def completion(self, behaviour: str, body: dict[str, Any]) -> dict[str, Any]:
        content = answer_text(behaviour, self.judge.right_answer(body))
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if behaviour == "refusal":
            message |= {"content": None, "refusal": "I can't judge others."}
        finish = "length" if behaviour in ("truncated", "cut off") else "stop"
        return {
            "id": "chatcmpl-fake",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        }

    def send(
        self, status: int, value: dict[str, Any], headers: dict[str, str] | None = None
    ) -> None:
        self.send_bytes(
            status,
            json.dumps(value).encode(),
            {"content-type": "application/json"} | (headers or {}),
        )

    def send_bytes(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def trickle(self, data: bytes) -> None:
        """One byte every now and then: never idle, never done."""
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        for at in range(len(data)):
            self.wfile.write(data[at : at + 1])
            self.wfile.flush()
            time.sleep(0.05)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def running_judge() -> Generator[FakeJudge]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    judge = FakeJudge(f"http://127.0.0.1:{server.server_address[1]}/v1")
    server.RequestHandlerClass = type("Handler", (_Handler,), {"judge": judge})
    thread = threading.Thread(
        target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.02}
    )
    thread.start()
    try:
        yield judge
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
