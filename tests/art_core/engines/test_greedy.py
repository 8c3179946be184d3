# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Greedy output equals transformers' generate, whatever shares the batch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from art_core.engines.embedded import EmbeddedEngine
from art_core.errors import EngineError
from art_core.weights import BaseModelFiles
from art_core.weights.loading import BaseWeights

from .conftest import ARCHITECTURES, VOCAB, TinyModels, complete, random_prompt, running


def generate(weights: BaseWeights, prompt: list[int], tokens: int) -> list[int]:
    model: Any = weights.new_model()
    model.generation_config = GenerationConfig(
        max_new_tokens=tokens, do_sample=False, pad_token_id=0
    )
    output = model.generate(torch.tensor([prompt]))
    return output[0, len(prompt) :].tolist()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
async def test_greedy_equals_generate(tiny: TinyModels, architecture: str) -> None:
    weights = tiny(architecture)
    shared = random_prompt(90, seed=1)
    prompts = [random_prompt(n, seed=n) for n in (1, 5, 40, 130)]
    prompts += [shared + random_prompt(n, seed=100 + n) for n in (1, 2, 20)]
    expected = [generate(weights, prompt, 40) for prompt in prompts]
    async with running(weights, step_tokens=64) as engine:
        for _ in range(2):  # the second time on cached prefixes
            done = await asyncio.gather(
                *[complete(engine, p, temperature=0, max_tokens=40) for p in prompts]
            )
            assert [d.tokens for d in done] == expected
        assert engine.stats().cached_prompt_tokens > 3 * 80


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("mamba", "linear_attention"),
        ("bloom", "transformers' interface"),
        ("gpt_oss", "s_aux"),
        ("qwen3_next", "linear_attention"),
    ],
)
def test_what_it_cannot_serve_it_refuses_by_name(
    tiny: TinyModels, model_type: str, reason: str
) -> None:
    sizes = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    config = AutoConfig.for_model(model_type, **sizes, **heads, num_local_experts=4, num_experts=4)
    weights = tiny("llama")
    model = AutoModelForCausalLM.from_config(config).eval()
    files: BaseModelFiles = weights.files
    with pytest.raises(EngineError, match=reason):
        EmbeddedEngine(BaseWeights(files, weights.tokenizer, model))
