# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
"""Tiny random models of many architectures, and ways to talk to an engine."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from art_core.engines.embedded import EmbeddedEngine, EmbeddedOptions
from art_core.engines.protocol import AdapterRef
from art_core.trajectories.sampling import SamplingParams
from art_core.weights import resolve
from art_core.weights.loading import BaseWeights, load

VOCAB = 160
_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_OWN: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 8},
    "qwen2": {},
    "mistral": {"sliding_window": 24, "head_dim": 8},
    "gemma2": {"sliding_window": 24, "head_dim": 8, "query_pre_attn_scalar": 8},
    "gemma3_text": {"sliding_window": 24, "head_dim": 8},
    "phi3": {},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512},
}
ARCHITECTURES = tuple(_OWN)


@dataclass
class Completed:
    """A whole completion, put together from its chunks."""

    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    tops: list[dict[int, float]] = field(default_factory=list[dict[int, float]])
    reason: str | None = None


class TinyModels:
    """Random models by architecture, saved and loaded as a user's folder would be."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: dict[str, BaseWeights] = {}

    def __call__(self, architecture: str) -> BaseWeights:
        if architecture not in self._loaded:
            self._loaded[architecture] = self._make(architecture)
        return self._loaded[architecture]

    def _make(self, architecture: str) -> BaseWeights:
        common = {} if architecture == "gpt2" else _COMMON
        if architecture == "gpt2":
            common = {"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2}
        config = AutoConfig.for_model(architecture, **{**common, **_OWN[architecture]})
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        for parameter in model.parameters():  # sharper than the usual start: logits differ clearly
            parameter.data *= 4 if parameter.ndim > 1 else 1
        folder = self._folder / architecture
        model.save_pretrained(folder)
        words = {f"w{i}": i for i in range(VOCAB)}
        backend = Tokenizer(models.WordLevel(words, unk_token="w0"))
        PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="w2").save_pretrained(folder)
        return load(resolve(str(folder)), dtype="float32", device="cpu")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    return TinyModels(tmp_path_factory.mktemp("tiny-models"))


@contextlib.asynccontextmanager
async def running(weights: BaseWeights, **options: Any) -> AsyncGenerator[EmbeddedEngine]:
    settings: dict[str, Any] = {"kv_bytes": 16 << 20, **options}
    engine = EmbeddedEngine(weights, EmbeddedOptions(**settings))
    try:
        yield engine
    finally:
        await engine.close()


async def complete(
    engine: EmbeddedEngine,
    prompt: Sequence[int],
    *,
    adapter: AdapterRef | None = None,
    **sampling: Any,
) -> Completed:
    done = Completed()
    async for chunk in engine.generate(prompt, SamplingParams(**sampling), adapter=adapter):
        done.tokens += chunk.token_ids
        done.logprobs += chunk.logprobs
        done.tops += chunk.top_logprobs
        done.reason = chunk.finish_reason
    return done


def random_prompt(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCAB, (length,), generator=generator).tolist()


@torch.no_grad()
def teacher_forced(
    model: torch.nn.Module, prompt: Sequence[int], completion: Sequence[int], temperature: float
) -> list[float]:
    """Log-probabilities of a completion from one pass over the whole sequence."""
    ids = torch.tensor([[*prompt, *completion]])
    logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float() / temperature
    chosen = torch.log_softmax(logits, -1).gather(1, torch.tensor(completion)[:, None])
    return chosen.squeeze(1).tolist()


@pytest.fixture
def save_adapter(tmp_path: Path) -> Callable[..., tuple[Path, torch.nn.Module]]:
    """Writes a random LoRA folder with PEFT; returns it and PEFT's own model with it."""

    def save(
        weights: BaseWeights, name: str, *, seed: int = 0, **config: Any
    ) -> tuple[Path, torch.nn.Module]:
        torch.manual_seed(seed)
        settings: dict[str, Any] = {
            "r": 4,
            "lora_alpha": 8,
            "target_modules": "all-linear",
            **config,
        }
        with warnings.catch_warnings():  # PEFT's own, about transformers and tied weights
            warnings.simplefilter("ignore")
            model = get_peft_model(weights.new_model(), LoraConfig(**settings))
        for key, parameter in model.named_parameters():
            if "lora_" in key:
                parameter.data = torch.randn_like(parameter) * 0.3
        folder = tmp_path / name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.save_pretrained(str(folder))
        return folder, model.eval()

    return save
