"""Recorded log-probabilities equal a teacher-forced pass over the same weights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from art_core.engines.protocol import AdapterRef
from art_core.weights.loading import load

from .conftest import TinyModels, complete, random_prompt, running, teacher_forced

REF = AdapterRef("policy", 1)


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma2"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
async def test_base_logprobs(tiny: TinyModels, architecture: str, temperature: float) -> None:
    weights = tiny(architecture)
    prompts = [random_prompt(70, seed=1) + random_prompt(n, seed=n) for n in (1, 9, 30)]
    async with running(weights) as engine:
        done = await asyncio.gather(
            *[
                complete(engine, p, temperature=temperature, max_tokens=30, seed=i)
                for i, p in enumerate(prompts)
            ]
        )
    for prompt, completion in zip(prompts, done, strict=True):
        expected = teacher_forced(weights.new_model(), prompt, completion.tokens, temperature)
        assert completion.logprobs == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("copy_bytes", [1 << 30, 0], ids=["merged", "unmerged"])
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"use_rslora": True},
        {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"q_proj": 32}},
        {"target_modules": ["q_proj", "down_proj"]},
    ],
    ids=["plain", "rslora", "patterns", "some-layers"],
)
async def test_adapter_logprobs_equal_pefts(
    tiny: TinyModels,
    save_adapter: Callable[..., tuple[Path, torch.nn.Module]],
    config: dict[str, Any],
    copy_bytes: int,
) -> None:
    weights = tiny("llama")
    folder, reference = save_adapter(weights, "adapter", **config)
    prompt = random_prompt(50, seed=3)
    async with running(weights, copy_bytes=copy_bytes) as engine:
        await engine.load_adapter(REF, folder)
        done, base = await asyncio.gather(
            complete(engine, prompt, adapter=REF, temperature=0.8, max_tokens=30, seed=5),
            complete(engine, prompt, temperature=0.8, max_tokens=30, seed=5),
        )
    assert done.logprobs == pytest.approx(
        teacher_forced(reference, prompt, done.tokens, 0.8), abs=2e-4
    )
    assert base.logprobs == pytest.approx(
        teacher_forced(weights.new_model(), prompt, base.tokens, 0.8), abs=2e-4
    )
    assert done.tokens != base.tokens


async def test_in_bfloat16_they_agree_to_its_precision(tiny: TinyModels) -> None:
    weights = load(tiny("llama").files, dtype="bfloat16", device="cpu")
    prompt = random_prompt(80, seed=1)
    async with running(weights) as engine:
        done = await asyncio.gather(
            *[complete(engine, prompt, max_tokens=20, seed=i) for i in range(3)]
        )
    assert engine.info.dtype == "bfloat16"
    for completion in done:
        expected = teacher_forced(weights.new_model(), prompt, completion.tokens, 1.0)
        assert completion.logprobs == pytest.approx(expected, abs=0.3)


async def test_top_logprobs_hold_the_likeliest_tokens(tiny: TinyModels) -> None:
    prompt = random_prompt(20, seed=2)
    async with running(tiny("llama")) as engine:
        done = await complete(engine, prompt, temperature=0, max_tokens=5, top_logprobs=4)
    assert [len(top) for top in done.tops] == [4] * 5
    for token, logprob, top in zip(done.tokens, done.logprobs, done.tops, strict=True):
        assert max(top, key=lambda t: top[t]) == token
        assert top[token] == pytest.approx(logprob)
