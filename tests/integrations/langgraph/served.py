"""A backend whose gateway, records and capture are real, and whose model answers by script."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from art_core.chat import TemplateFormat, chat_format_for
from art_core.config import CaptureConfig, StepConfig
from art_core.engines.protocol import AdapterRef, Chunk, EngineInfo
from art_core.gateway import GatewayServer, Policy
from art_core.rollouts import Model, TrainableModel
from art_core.rollouts.backend import RolloutMode, RolloutTicket, TrainResult
from art_core.rollouts.closed import ClosedRollout
from art_core.runs import RunDirectory
from art_core.runs.records import RecordStore
from art_core.trajectories import Completion, SamplingParams, Trajectory, TrajectoryGroup
from tests.art_core.chat.conftest import SMOLLM2_TEMPLATE, make_tokenizer
from tests.integrations.langgraph.script import marker_of, reply_to

TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", re.DOTALL)


class ScriptedEngine:
    """Reads the prompt's last turn and answers as `reply_to` says, a few tokens at a time."""

    def __init__(self, chat: TemplateFormat) -> None:
        self._chat = chat

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            engine="scripted",
            base_model="scripted",
            context_length=32768,
            vocab_size=1000,
            dtype="float32",
            device="cpu",
        )

    async def generate(
        self,
        prompt_token_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        adapter: AdapterRef | None = None,
    ) -> AsyncGenerator[Chunk]:
        answer = self._chat.encode(self._answer(self._chat.decode(prompt_token_ids)))
        answer.append(self._chat.stop_token_ids[0])
        for start in range(0, len(answer), 8):
            piece = answer[start : start + 8]
            last = start + 8 >= len(answer)
            yield Chunk(
                token_ids=piece,
                logprobs=[math.log(0.5)] * len(piece),
                finish_reason="stop" if last else None,
            )

    def _answer(self, prompt: str) -> str:
        role, text = TURN.findall(prompt)[-1]
        if "<tool_response>" in text:
            role = "tool"
        marker = marker_of(re.sub(r"<tools>.*?</tools>", "", prompt, flags=re.DOTALL))
        reply = reply_to(role, text, marker)
        if reply.tool is None:
            return reply.text
        call = {"name": reply.tool, "arguments": json.loads(reply.arguments)}
        return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"

    async def load_adapter(self, adapter: AdapterRef, path: Path) -> None:
        raise NotImplementedError

    async def unload_adapter(self, adapter: AdapterRef) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is held."""


class ScriptedBackend:
    """The part of `Backend` that rollouts need."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._gateway = GatewayServer()
        self._gateway.start()
        self._records: dict[str, RecordStore] = {}
        self._chat = chat_format_for(
            make_tokenizer(SMOLLM2_TEMPLATE, ("<|im_start|>", "<|im_end|>", "<|endoftext|>"))
        )

    def new_policy(self, name: str, *agent_hosts: str) -> TrainableModel[Any]:
        """A model that is registered here and captures calls to these hosts (or to OpenAI)."""
        capture = CaptureConfig(hosts=agent_hosts) if agent_hosts else CaptureConfig()
        model = TrainableModel[Any](
            name=name, project="zoo", base_model="scripted", capture=capture
        )
        # In a thread of its own: the caller may have an event loop running.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, model.register(self)).result()
        return model

    async def register(self, model: Model[Any]) -> None:
        records = RecordStore(self._folder / f"{model.name}.sqlite")
        self._records[model.name] = records
        engine = ScriptedEngine(self._chat)
        self._gateway.add_policy(
            Policy(
                name=model.name,
                project=model.project,
                chat=self._chat,
                engine=engine,
                records=records,
            )
        )
        model.inference_base_url = f"{self._gateway.url}/v1"
        model.inference_api_key = "unused"
        model.inference_model_name = model.name

    def run_directory(self, model: Model[Any]) -> RunDirectory:
        raise NotImplementedError

    async def open_rollout(
        self,
        model: TrainableModel[Any],
        *,
        mode: RolloutMode,
        seed: int | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> RolloutTicket:
        return self._gateway.open_rollout(model.name, mode=mode, seed=seed, tags=tags)

    async def close_rollout(self, model: TrainableModel[Any], rollout_id: str) -> ClosedRollout:
        return ClosedRollout.of(self._gateway.close_rollout(rollout_id))

    async def completions(
        self, model: TrainableModel[Any], completion_ids: Sequence[str]
    ) -> list[Completion]:
        return self._records[model.name].by_ids(completion_ids)

    async def train(
        self, model: TrainableModel[Any], groups: Sequence[TrajectoryGroup], config: StepConfig
    ) -> TrainResult:
        raise NotImplementedError

    async def log(
        self, model: Model[Any], groups: Sequence[TrajectoryGroup], *, split: str
    ) -> None:
        raise NotImplementedError

    async def get_step(self, model: TrainableModel[Any]) -> int:
        return 0

    async def close(self) -> None:
        self.stop()

    def stop(self) -> None:
        self._gateway.stop()
        for records in self._records.values():
            records.close()


async def records_of(model: TrainableModel[Any], trajectory: Trajectory) -> list[Completion]:
    """What was recorded of a trajectory's calls."""
    ids = [each for history in trajectory.histories for each in history.completion_ids]
    return await model.backend().completions(model, ids)


async def nodes_of(model: TrainableModel[Any], trajectory: Trajectory) -> list[str]:
    """The nodes that they came from."""
    return sorted(record.tags["node"] for record in await records_of(model, trajectory))
