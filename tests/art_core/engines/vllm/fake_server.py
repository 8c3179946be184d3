"""A fake vLLM server: the HTTP API that the engine uses, over the policy of `fake_policy`.

It takes the real one's command line. ``FAKE_VLLM`` in the environment is a JSON object:
``token_seconds`` (time per token), ``start_error`` (printed before it exits with status 1),
``logprobs_mode`` (answers as under another ``--logprobs-mode``), ``top_k`` (restricts what is
drawn, whatever is asked), ``break_off`` (tokens after which every completion breaks off).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

sys.path.insert(0, str(Path(__file__).parent))
from fake_policy import BASE, CONTEXT, VOCAB, log_softmax, logits, policy_of

SETTINGS: dict[str, Any] = json.loads(os.environ.get("FAKE_VLLM", "{}"))


@dataclass
class State:
    model: str = ""
    mode: str = ""
    max_rank: int = 0
    adapters: dict[str, str] = field(default_factory=dict[str, str])
    policies: dict[str, str] = field(default_factory=dict[str, str])
    running: int = 0
    asleep: bool = False
    log: list[str] = field(default_factory=list[str])


STATE = State()


def problem(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "code": status}}, status_code=status)


def draw(policy: str, tokens: list[int], body: dict[str, Any], numbers: random.Random) -> Any:
    """A token, and the table of logprobs that this mode reports."""
    z = logits(policy, tokens)
    raw = log_softmax(z)
    biases: dict[str, float] = body.get("logit_bias") or {}
    for token, bias in biases.items():
        z[int(token)] += bias
    temperature = body["temperature"]
    z = [value / (temperature or 1.0) for value in z]
    allowed = sorted(range(VOCAB), key=lambda token: -z[token])
    top_k = SETTINGS.get("top_k") or body.get("top_k") or VOCAB
    if temperature == 0:
        chosen = allowed[0]
    else:
        allowed = allowed[:top_k]
        kept: list[int] = []
        mass = 0.0
        probabilities = [math.exp(p) for p in log_softmax(z)]
        for token in allowed:
            if mass >= body.get("top_p", 1.0):
                break
            kept.append(token)
            mass += probabilities[token]
        allowed = kept
        chosen = numbers.choices(allowed, [probabilities[token] for token in allowed])[0]
    left = [z[token] if token in allowed or temperature == 0 else -9999.0 for token in range(VOCAB)]
    table = {
        "raw_logprobs": raw,
        "processed_logprobs": log_softmax(left),
        "processed_logits": left,
    }[SETTINGS.get("logprobs_mode") or STATE.mode]
    return chosen, table


def tops(table: list[float], chosen: int, count: int) -> dict[str, float]:
    best = sorted(range(VOCAB), key=lambda token: -table[token])[:count]
    return {f"token_id:{token}": table[token] for token in {*best, chosen}}


async def sample(policy: str, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    tokens, most = list(body["prompt"]), body["max_tokens"]
    numbers = random.Random(body.get("seed"))
    STATE.running += 1
    try:
        for position in range(most):
            await asyncio.sleep(SETTINGS.get("token_seconds", 0))
            if position == SETTINGS.get("break_off"):
                yield {"error": {"message": "the engine stumbled"}}
                return
            token, table = draw(policy, tokens, body, numbers)
            tokens.append(token)
            stopped = token in (body.get("stop_token_ids") or [])
            last = stopped or position == most - 1
            yield choice(
                [token],
                {
                    "token_logprobs": [table[token]],
                    "top_logprobs": [tops(table, token, body["logprobs"])],
                },
                ("stop" if stopped else "length") if last else None,
            )
            if last:
                return
    finally:
        STATE.running -= 1


def choice(tokens: list[int], logprobs: Any, reason: str | None, **more: Any) -> dict[str, Any]:
    said = {"token_ids": tokens, "logprobs": logprobs, "finish_reason": reason, **more}
    return {"choices": [{"index": 0, "text": "", **said}]}


async def completions(request: Request) -> Response:
    body = await request.json()
    STATE.log.append(f"{body['model']} {len(body['prompt'])}")
    policy = BASE if body["model"] == STATE.model else STATE.policies.get(body["model"])
    if policy is None:
        return problem(404, f"The model `{body['model']}` does not exist.")
    if len(body["prompt"]) >= CONTEXT:
        return problem(400, "longer than the maximum context length")
    form: dict[str, str] = body.get("structured_outputs") or {}
    grammar = form.get("grammar")
    if grammar is not None and "start:" not in grammar:
        return problem(400, "Grammar error: no start")
    if "prompt_logprobs" in body:
        prompt = body["prompt"]
        tables = [log_softmax(logits(policy, prompt[:at])) for at in range(1, len(prompt))]
        places = [
            {
                name.removeprefix("token_id:"): {"logprob": value}
                for name, value in tops(table, token, body["prompt_logprobs"]).items()
            }
            for table, token in zip(tables, prompt[1:], strict=True)
        ]
        return JSONResponse(choice([0], None, "length", prompt_logprobs=[None, *places]))
    if body.get("stream"):

        async def events() -> AsyncIterator[str]:
            async for event in sample(policy, body):
                yield f"data: {json.dumps(event)}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")
    pieces = [event["choices"][0] async for event in sample(policy, body)]
    logprobs = {
        key: [value for piece in pieces for value in piece["logprobs"][key]]
        for key in ("token_logprobs", "top_logprobs")
    }
    tokens = [token for piece in pieces for token in piece["token_ids"]]
    return JSONResponse(choice(tokens, logprobs, pieces[-1]["finish_reason"]))


async def models(request: Request) -> Response:
    base = {"id": STATE.model, "parent": None, "max_model_len": CONTEXT}
    adapters = [{"id": name, "parent": STATE.model} for name in STATE.adapters]
    return JSONResponse({"object": "list", "data": [base, *adapters]})


async def load_adapter(request: Request) -> Response:
    body = await request.json()
    name, path = body["lora_name"], Path(body["lora_path"])
    if name in STATE.adapters:
        return problem(400, f"The lora adapter '{name}' has already been loaded.")
    if not (path / "adapter_config.json").is_file():
        return problem(404, f"Loading lora {name} failed: No adapter found for <path>")
    rank = json.loads((path / "adapter_config.json").read_text())["r"]
    if rank > STATE.max_rank:
        return problem(400, f"LoRA rank {rank} is greater than max_lora_rank {STATE.max_rank}.")
    STATE.adapters[name] = str(path)
    STATE.policies[name] = policy_of((path / "adapter_model.safetensors").read_bytes())
    STATE.log.append(f"load {name}")
    return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")


async def unload_adapter(request: Request) -> Response:
    name = (await request.json())["lora_name"]
    if name not in STATE.adapters:
        return problem(404, f"The lora adapter '{name}' cannot be found.")
    del STATE.adapters[name], STATE.policies[name]
    STATE.log.append(f"unload {name}")
    return PlainTextResponse("Success")


async def sleep(request: Request) -> Response:
    STATE.asleep = True
    STATE.log.append(f"sleep {STATE.running}")
    return JSONResponse({})


async def wake_up(request: Request) -> Response:
    STATE.asleep = False
    STATE.log.append("wake_up")
    return JSONResponse({})


async def health(request: Request) -> Response:
    return Response()


async def look(request: Request) -> Response:
    """For tests: what has happened."""
    return JSONResponse(
        {"log": STATE.log, "running": STATE.running, "adapters": list(STATE.adapters)}
    )


class Key:
    """Asks for the key as vLLM does: below ``/v1`` only."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        key = os.environ.get("VLLM_API_KEY")
        sent = dict(scope.get("headers", [])).get(b"authorization", b"").decode()
        if key and scope.get("path", "").startswith("/v1") and sent != f"Bearer {key}":
            await JSONResponse({"error": "Unauthorized"}, status_code=401)(scope, receive, send)
            return
        await self.app(scope, receive, send)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--logprobs-mode", default="raw_logprobs")
    parser.add_argument("--max-lora-rank", type=int, default=16)
    arguments, _ = parser.parse_known_args()
    if "start_error" in SETTINGS:
        print(SETTINGS["start_error"])
        sys.exit(1)
    STATE.model, STATE.mode = arguments.model, arguments.logprobs_mode
    STATE.max_rank = arguments.max_lora_rank
    routes = [
        Route("/health", health),
        Route("/look", look),
        Route("/v1/models", models),
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/sleep", sleep, methods=["POST"]),
        Route("/wake_up", wake_up, methods=["POST"]),
    ]
    if os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING"):
        routes += [
            Route("/v1/load_lora_adapter", load_adapter, methods=["POST"]),
            Route("/v1/unload_lora_adapter", unload_adapter, methods=["POST"]),
        ]
    app = Key(Starlette(routes=routes))
    uvicorn.run(app, host=arguments.host, port=arguments.port, log_level="warning", lifespan="off")


if __name__ == "__main__":
    main()
