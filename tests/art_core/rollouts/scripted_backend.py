"""A backend whose model is a Python function, behind a real OpenAI-compatible HTTP server.

A token is a byte of the rendered conversation, so prompts of continued conversations
begin with the tokens before them, as the gateway's do.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from art_core.config import StepConfig
from art_core.errors import UnknownCompletionError
from art_core.rollouts.backend import RolloutMode, RolloutTicket, TrainResult
from art_core.rollouts.closed import ClosedRollout
from art_core.rollouts.model import Model, TrainableModel
from art_core.rollouts.prepare import prepare_groups
from art_core.rollouts.route import TAGS_HEADER
from art_core.runs import RunDirectory
from art_core.trajectories import (
    Completion,
    CompletionStatus,
    Message,
    SamplingParams,
    TrajectoryGroup,
)


@dataclass(slots=True)
class Call:
    """What the script sees of a model call."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    rollout_id: str | None
    step: int
    seed: int | None = None

    @property
    def last(self) -> str:
        """The content of the last message."""
        messages = self.body.get("messages") or self.body.get("input") or [{"content": ""}]
        return messages if isinstance(messages, str) else str(messages[-1]["content"])


Script = Callable[[Call], str]


def improving(call: Call) -> str:
    """Says ``right`` more often with each step."""
    return "right" if random.Random(call.seed).random() < 0.3 + 0.15 * call.step else "wrong"


@dataclass(slots=True)
class OpenRollout:
    mode: RolloutMode
    seed: int | None
    tags: dict[str, str]
    records: list[str] = field(default_factory=list[str])
    closed: bool = False


class ScriptedBackend:
    """See the module's docstring."""

    def __init__(self, root: Path, script: Script = improving, *, fresh: bool = False) -> None:
        self.root = root
        self.script: Script = script
        self.delay = 0.0
        self.calls: list[Call] = []
        self.records: dict[str, Completion] = {}
        self.rollouts: dict[str, OpenRollout] = {}
        self._fresh = fresh
        self._runs: dict[str, RunDirectory] = {}
        self._lock = threading.Lock()
        self._server = _HttpServer(self._answer)

    async def __aenter__(self) -> ScriptedBackend:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def url(self) -> str:
        return self._server.url

    def of_rollout(self, rollout_id: str | None) -> list[Completion]:
        return [record for record in self.records.values() if record.rollout_id == rollout_id]

    async def register(self, model: Model[Any]) -> None:
        trainable = isinstance(model, TrainableModel)
        self._runs[model.name] = RunDirectory.open(
            self.root,
            project=model.project,
            model=model.name,
            base_model=model.base_model if trainable else None,
            base_digest=model.base_model if trainable else None,
            lora=model.lora if trainable else None,
            fresh=self._fresh,
        )
        if trainable:
            model.inference_base_url = f"{self.url}/v1"
            model.inference_api_key = "plain-key"
            model.inference_model_name = model.name

    def run_directory(self, model: Model[Any]) -> RunDirectory:
        return self._runs[model.name]

    async def open_rollout(
        self,
        model: TrainableModel[Any],
        *,
        mode: RolloutMode,
        seed: int | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> RolloutTicket:
        rollout_id = uuid4().hex
        self.rollouts[rollout_id] = OpenRollout(mode, seed, dict(tags or {}))
        return RolloutTicket(
            rollout_id=rollout_id,
            base_url=f"{self.url}/r/{rollout_id}/v1",
            api_key=f"key-{rollout_id}",
            headers={"x-art-rollout": rollout_id},
            policy_version=self._runs[model.name].step,
        )

    async def close_rollout(self, model: TrainableModel[Any], rollout_id: str) -> ClosedRollout:
        self.rollouts[rollout_id].closed = True
        records = self.rollouts[rollout_id].records
        return ClosedRollout.of(self.records[record_id] for record_id in records)

    async def completions(
        self, model: TrainableModel[Any], completion_ids: Sequence[str]
    ) -> list[Completion]:
        missing = [i for i in completion_ids if i not in self.records]
        if missing:
            raise UnknownCompletionError(f"there is no record of completion {missing[0]}")
        return [self.records[completion_id] for completion_id in completion_ids]

    async def train(
        self, model: TrainableModel[Any], groups: Sequence[TrajectoryGroup], config: StepConfig
    ) -> TrainResult:
        run = self.run_directory(model)
        prepared = await prepare_groups(self, model, groups)
        latest = run.checkpoints.latest()
        before = (latest.path / "optimizer").read_text() if latest else ""
        seen = [[t.reward, [h.token_ids for h in t.histories]] for g in prepared for t in g]
        state = hashlib.sha256((before + json.dumps(seen)).encode()).hexdigest()

        def write(folder: Path) -> None:
            (folder / "optimizer").write_text(state)

        step = run.step + 1
        await asyncio.to_thread(run.commit, step, write, groups=prepared, metrics={"loss": 0.5})
        return TrainResult(step=step, metrics={"loss": 0.5})

    async def log(
        self, model: Model[Any], groups: Sequence[TrajectoryGroup], *, split: str
    ) -> None:
        run = self.run_directory(model)
        run.log_groups(run.step, split, groups)

    async def get_step(self, model: TrainableModel[Any]) -> int:
        return self.run_directory(model).step

    async def close(self) -> None:
        self._server.stop()
        for run in self._runs.values():
            run.close()

    async def _answer(self, request: Request) -> Response:
        rollout_id = _attributed(request)
        body = json.loads(await request.body())
        headers = dict(request.headers)
        step = max((run.step for run in self._runs.values()), default=0)
        call = Call(request.url.path, headers, body, rollout_id, step)
        with self._lock:
            self.calls.append(call)
            rollout = self.rollouts.get(rollout_id) if rollout_id else None
            if rollout is not None:
                number = len(rollout.records)
                call.seed = hash((rollout.seed, number)) if rollout.seed is not None else None
        if rollout is not None and rollout.closed:
            return JSONResponse({"error": {"message": "rollout is over"}}, status_code=409)
        await asyncio.sleep(self.delay)
        text = self.script(call)
        if text.startswith("HTTP "):
            message = {"error": {"message": text}}
            return JSONResponse(message, status_code=int(text[5:8]))
        record = self._record(call, rollout, text)
        return _response(call, record, text)

    def _record(self, call: Call, rollout: OpenRollout | None, text: str) -> Completion:
        messages: list[Message] = call.body.get("messages") or [
            {"role": "user", "content": call.body.get("prompt") or call.last}
        ]
        prompt, sampled = render(messages), list(f"{text}</>".encode())
        tags = json.loads(call.headers.get(TAGS_HEADER, "{}"))
        now = time.time()
        record = Completion(
            id=uuid4().hex,
            request_id=uuid4().hex,
            rollout_id=call.rollout_id,
            policy=str(call.body.get("model")),
            policy_version=call.step,
            messages=messages,
            tools=call.body.get("tools"),
            sampling=SamplingParams(),
            response={"role": "assistant", "content": text},
            prompt_token_ids=prompt,
            completion_token_ids=sampled,
            logprobs=[-0.5] * len(sampled),
            trainable=[True] * len(sampled),
            finish_reason="stop",
            status=CompletionStatus.COMPLETED,
            tags={**(rollout.tags if rollout else {}), **tags},
            started_at=now,
            finished_at=now,
        )
        with self._lock:
            if int(call.headers.get("x-stainless-retry-count", "0")) and rollout:
                self._abandon_last(rollout)
            self.records[record.id] = record
            if rollout is not None:
                rollout.records.append(record.id)
        return record

    def _abandon_last(self, rollout: OpenRollout) -> None:
        if rollout.records:
            last = rollout.records[-1]
            abandoned = {"status": CompletionStatus.ABANDONED}
            self.records[last] = self.records[last].model_copy(update=abandoned)


def render(messages: Sequence[Message]) -> list[int]:
    """The conversation's bytes, up to where the assistant begins."""
    text = "".join(f"<{m['role']}>{m.get('content')}</>" for m in messages)
    return list(f"{text}<assistant>".encode())


def _attributed(request: Request) -> str | None:
    in_path = request.path_params.get("rollout")
    in_key = request.headers.get("authorization", "").partition("Bearer key-")[2]
    return in_path or request.headers.get("x-art-rollout") or in_key or None


def _response(call: Call, record: Completion, text: str) -> Response:
    if call.path.endswith("/responses"):
        return JSONResponse(_responses_body(record, text))
    if call.path.endswith("/messages"):
        return JSONResponse(
            {
                "id": f"msg_{record.id}",
                "type": "message",
                "role": "assistant",
                "content": [{"type": "text", "text": text}],
            }
        )
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
        "completion_id": record.id,
    }
    head = {
        "id": f"chatcmpl-{record.id}",
        "created": int(record.started_at),
        "model": str(call.body.get("model")),
    }
    if call.path.endswith("/chat/completions"):
        if call.body.get("stream"):
            return StreamingResponse(_stream(head, text), media_type="text/event-stream")
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return JSONResponse(
            {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        )
    return JSONResponse(
        {
            **head,
            "object": "text_completion",
            "choices": [{"index": 0, "finish_reason": "stop", "text": text, "logprobs": None}],
        }
    )


def _responses_body(record: Completion, text: str) -> dict[str, Any]:
    content: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
    return {
        "id": f"resp_{record.id}",
        "object": "response",
        "created_at": record.started_at,
        "model": record.policy,
        "status": "completed",
        "output": [
            {
                "type": "message",
                "id": f"msg_{record.id}",
                "role": "assistant",
                "status": "completed",
                "content": [content],
            }
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 1,
            "output_tokens": 1,
            "total_tokens": 2,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


async def _stream(head: Mapping[str, Any], text: str) -> AsyncIterator[str]:
    for piece in [*text, None]:
        delta = {} if piece is None else {"content": piece}
        finish = "stop" if piece is None else None
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {**head, "object": "chat.completion.chunk", "choices": [choice]}
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


class _HttpServer:
    """Uvicorn in a thread, on a free port."""

    def __init__(self, answer: Callable[[Request], Any]) -> None:
        paths = ("chat/completions", "completions", "responses", "messages")
        routes = [
            Route(f"{prefix}/v1/{path}", answer, methods=["POST"])
            for prefix in ("", "/r/{rollout}")
            for path in paths
        ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            port=0,
            log_level="critical",
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.002)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
