"""The base model that a policy starts from, as judge: no other server, no key, no cost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from art_core.rollouts import TrainableModel
from art_core.trajectories import Message
from ruler.judges.model import Price, Reply, Structured
from ruler.judges.openai_server import OpenAIServer


class BaseModelJudge:
    """Asks the untrained base of a registered model, on the model's own backend.

    It is served as a model of its own, ``<name>-judge``, which is never trained; the
    weights in memory are shared. Small base models are poor judges: measure it with
    `ruler.evaluate` first.

    Args:
        model: registered with its backend.
        params: more fields of the requests, ``max_tokens`` say.
        structured: how the form of the answer is asked for.
    """

    def __init__(
        self,
        model: TrainableModel[Any],
        *,
        params: Mapping[str, JsonValue] | None = None,
        structured: Structured = "none",
    ) -> None:
        self._model = model
        self._params = dict(params or {})
        self._structured: Structured = structured
        self._untrained: TrainableModel[Any] | None = None
        self._registering = asyncio.Lock()

    @property
    def name(self) -> str:
        return f"base model {self._model.base_model}"

    @property
    def identity(self) -> Mapping[str, JsonValue]:
        return {
            "kind": "base model",
            "base_model": self._model.base_model,
            "params": self._params,
            "structured": self._structured,
        }

    async def reply(self, messages: Sequence[Message], schema: Mapping[str, JsonValue]) -> Reply:
        backend = self._model.backend()
        untrained = await self._served()
        # Each question is a rollout of its own, so that the gateway knows whose call it is.
        ticket = await backend.open_rollout(untrained, mode="eval")
        try:
            server = OpenAIServer(
                base_url=ticket.base_url,
                model=untrained.get_inference_name(),
                api_key=ticket.api_key,
                params=self._params,
                structured=self._structured,
                price=Price(prompt=0, completion=0),
            )
            return await server.reply(messages, schema)
        finally:
            await backend.close_rollout(untrained, ticket.rollout_id)

    async def _served(self) -> TrainableModel[Any]:
        async with self._registering:
            if self._untrained is None:
                twin = TrainableModel[Any](
                    name=f"{self._model.name}-judge",
                    project=self._model.project,
                    base_model=self._model.base_model,
                    lora=self._model.lora,
                )
                await twin.register(self._model.backend())
                self._untrained = twin
            return self._untrained
