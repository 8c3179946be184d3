"""A server that misbehaves as its arguments and its tools' names say; raw JSON-RPC, no SDK.

python bad_server.py [slow_pages|endless_pages|dies_at_start|never_answers|chatty] …
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
REF = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}}}},
    "properties": {"at": {"$ref": "#/$defs/point"}, "or": {"anyOf": [{"type": "string"}, {}]}},
    "required": ["at"],
}
ENUM = {"type": "object", "properties": {"id": {"enum": [f"item-{i}" for i in range(5_000)]}}}
TOOLS: list[dict[str, Any]] = [
    {"name": "works", "description": "Says ok.", "inputSchema": {"type": "object"}},
    {"name": "hangs", "inputSchema": OBJECT},
    {"name": "dies", "inputSchema": OBJECT},
    {"name": "lies", "description": "An error that isn't called one.", "inputSchema": OBJECT},
    {"name": "fails", "inputSchema": OBJECT},
    {"name": "refuses", "inputSchema": OBJECT},
    {"name": "huge", "inputSchema": OBJECT},
    {"name": "invalid_utf8", "inputSchema": OBJECT},
    {"name": "twice", "description": "first", "inputSchema": OBJECT},
    {"name": "twice", "description": "second", "inputSchema": OBJECT},
    {"name": "dotted.name/here", "inputSchema": OBJECT},
    {"name": "refs", "inputSchema": REF},
    {"name": "enum", "inputSchema": ENUM},
    {"name": "broken_schema", "inputSchema": {"type": "object", "properties": {"a": {"type": 7}}}},
    {"name": "unresolvable", "inputSchema": {"type": "object", "$ref": "http://x.invalid/s"}},
    {"name": "nonsense", "inputSchema": OBJECT},
    {"name": "env", "description": "All of the environment.", "inputSchema": OBJECT},
    {"name": "grows", "description": "Adds a tool.", "inputSchema": OBJECT},
    {"name": "samples", "description": "Asks for sampling.", "inputSchema": OBJECT},
    {"name": "count", "description": "How often it was called.", "inputSchema": OBJECT},
    {
        "name": "wrong_output",
        "inputSchema": OBJECT,
        "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
    *({"name": f"tool_{i}", "inputSchema": OBJECT} for i in range(200)),
]
PAGE = 50
behaviour = set(sys.argv[1:])
counts = {"count": 0}


def send(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], **more}


def listed(cursor: str | None) -> dict[str, Any]:
    if "slow_pages" in behaviour:
        time.sleep(0.2)
    start = int(cursor or 0)
    page: dict[str, Any] = {"tools": TOOLS[start : start + PAGE]}
    if "endless_pages" in behaviour:
        page["nextCursor"] = "0"
    elif start + PAGE < len(TOOLS):
        page["nextCursor"] = str(start + PAGE)
    return page


def called(name: str, number: Any) -> dict[str, Any] | None:
    """A result; None where the answer was something else."""
    match name:
        case "hangs":
            send(
                {
                    "method": "notifications/progress",
                    "params": {
                        "progressToken": number,
                        "progress": 3,
                        "total": 9,
                        "message": "still here",
                    },
                }
            )
            return None
        case "dies":
            print("I can't go on", file=sys.stderr, flush=True)
            os._exit(3)
        case "lies":
            return text("Error: there is no such thing", isError=False)
        case "fails":
            return text("it broke", isError=True)
        case "huge":
            return text("x" * 10_000_000)
        case "invalid_utf8":
            answer = json.dumps({"jsonrpc": "2.0", "id": number, "result": text("caf@@ !")})
            sys.stdout.buffer.write(answer.encode().replace(b"@@", b"\xe9\xff") + b"\n")
            sys.stdout.buffer.flush()
            return None
        case "refuses":
            send({"id": number, "error": {"code": -32602, "message": "bad arguments"}})
            return None
        case "nonsense":
            return {"content": "no list"}
        case "env":
            return text(json.dumps(dict(os.environ)))
        case "wrong_output":
            return text("{}", structuredContent={"n": "seven"})
        case "grows":
            TOOLS.insert(0, {"name": "grown", "inputSchema": OBJECT})
            send({"method": "notifications/tools/list_changed"})
            return text("grown")
        case "samples":
            send(
                {
                    "id": "s1",
                    "method": "sampling/createMessage",
                    "params": {
                        "messages": [{"role": "user", "content": {"type": "text", "text": "?"}}],
                        "maxTokens": 5,
                    },
                }
            )
            return text(f"the client said {json.loads(sys.stdin.readline())}")
        case "count":
            counts["count"] += 1
            return text(str(counts["count"]))
        case _:
            return text("ok")


def answer(request: dict[str, Any]) -> None:
    method, number = request.get("method"), request.get("id")
    if number is None or method is None:
        return
    params: dict[str, Any] = request.get("params") or {}
    if method == "initialize":
        send(
            {
                "id": number,
                "result": {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "bad", "version": "0"},
                    "instructions": f"My key is {os.environ.get('API_KEY', 'none')}.",
                },
            }
        )
    elif method == "tools/list":
        send({"id": number, "result": listed(params.get("cursor"))})
    elif method == "tools/call":
        meta: dict[str, Any] = params.get("_meta") or {}
        token = meta.get("progressToken")
        known = params["name"] in {tool["name"] for tool in TOOLS}
        result = called(params["name"], token if params["name"] == "hangs" else number)
        if result is not None:
            send({"id": number, "result": result if known else text("Unknown tool")})
    elif "never_answers" not in behaviour:
        send({"id": number, "error": {"code": -32601, "message": "unknown method"}})


def main() -> None:
    if "dies_at_start" in behaviour:
        print(f"no key {os.environ.get('API_KEY')}", file=sys.stderr)
        sys.exit(1)
    if "chatty" in behaviour:
        print("Hello, I am a server", flush=True)
    if marker := os.environ.get("STARTS"):
        with Path(marker).open("a") as file:
            file.write("started\n")
    for line in sys.stdin:
        answer(json.loads(line))


if __name__ == "__main__":
    main()
