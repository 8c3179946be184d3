"""One base model in memory, shared by all models that are trained on it."""

from __future__ import annotations

from dataclasses import dataclass

from art_core.chat import ChatFormat, chat_format_for
from art_core.engines.embedded import EmbeddedEngine, EmbeddedOptions
from art_core.weights import BaseModelFiles
from art_core.weights.loading import BaseWeights, DtypeName, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The weights, the engine that serves them and the chat convention they were tuned to."""

    weights: BaseWeights
    engine: EmbeddedEngine
    chat: ChatFormat

    @classmethod
    def open(
        cls, files: BaseModelFiles, *, dtype: DtypeName, device: str, deterministic: bool
    ) -> Base:
        """Load a base model and start its engine.

        Raises:
            WeightsError: the weights can't be loaded.
            ChatError: the model has no chat template that can be used.
            EngineError: the engine can't serve this architecture.
        """
        weights = load(files, dtype=dtype, device=device)
        return cls(
            weights=weights,
            engine=EmbeddedEngine(weights, EmbeddedOptions(deterministic=deterministic)),
            chat=chat_format_for(weights.tokenizer),
        )
