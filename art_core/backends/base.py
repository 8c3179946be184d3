# pyright: reportUnknownMemberType=false
"""One base model in memory, shared by all models that are trained on it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from art_core.backends.choice import EngineChoice
from art_core.backends.engines import start_engine
from art_core.chat import ChatFormat, chat_format_for
from art_core.engines.protocol import InferenceEngine
from art_core.engines.vllm import VllmEngine
from art_core.weights import BaseModelFiles
from art_core.weights.loading import BaseWeights, DtypeName, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The weights, the engine that serves them and the chat convention they were tuned to."""

    weights: BaseWeights
    engine: InferenceEngine
    chat: ChatFormat

    @classmethod
    def open(
        cls,
        files: BaseModelFiles,
        *,
        dtype: DtypeName,
        device: str,
        engine: EngineChoice,
        lora_rank: int,
        folder: Path,
    ) -> Base:
        """Load a base model and start its engine.

        Args:
            lora_rank: of the adapter that is to be served.
            folder: for what the engine writes.

        Raises:
            WeightsError: the weights can't be loaded.
            ChatError: the model has no chat template that can be used.
            EngineError: the engine can't serve this architecture, or can't be started.
        """
        weights = load(files, dtype=dtype, device=device)
        chat = chat_format_for(weights.tokenizer)
        started = start_engine(engine, weights, lora_rank=lora_rank, folder=folder)
        return cls(weights=weights, engine=started, chat=chat)

    @asynccontextmanager
    async def training(self) -> AsyncGenerator[None]:
        """Memory for a training step: an engine on the same GPU sleeps meanwhile."""
        if not isinstance(self.engine, VllmEngine):
            yield
            return
        await self.engine.sleep()
        try:
            yield
        finally:
            if self.weights.device.type == "cuda":
                torch.cuda.empty_cache()  # what PyTorch keeps for itself, the engine can't have
            await self.engine.wake_up()
