"""KV is computed once for a shared prefix, and never mixed up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from art_core.engines.protocol import AdapterRef

from .conftest import TinyModels, complete, random_prompt, running, teacher_forced


async def test_requests_that_arrive_together_compute_their_prompt_once(tiny: TinyModels) -> None:
    weights = tiny("llama")
    prompt = random_prompt(200, seed=1)
    async with running(weights) as engine:
        done = await asyncio.gather(
            *[complete(engine, prompt, max_tokens=20, seed=i) for i in range(12)]
        )
        stats = engine.stats()
    assert stats.prompt_tokens == 12 * 200
    assert stats.cached_prompt_tokens == 11 * 199
    for completion in done:
        expected = teacher_forced(weights.new_model(), prompt, completion.tokens, 1.0)
        assert completion.logprobs == pytest.approx(expected, abs=2e-4)


async def test_a_second_turn_reuses_the_first_and_its_completion(tiny: TinyModels) -> None:
    weights = tiny("llama")
    first = random_prompt(45, seed=1)
    async with running(weights) as engine:
        turn = await complete(engine, first, max_tokens=30, seed=1)
        before = engine.stats().cached_prompt_tokens
        second = [*first, *turn.tokens, *random_prompt(10, seed=2)]
        done = await complete(engine, second, max_tokens=10, seed=2)
        assert engine.stats().cached_prompt_tokens - before == 45 + 29  # the last wasn't computed
    expected = teacher_forced(weights.new_model(), second, done.tokens, 1.0)
    assert done.logprobs == pytest.approx(expected, abs=2e-4)


async def test_a_partly_matching_block_serves_the_tokens_that_match(tiny: TinyModels) -> None:
    weights = tiny("llama")
    stem = random_prompt(37, seed=1)  # two blocks and five tokens
    async with running(weights) as engine:
        await complete(engine, [*stem, 5, 6, 7], max_tokens=1)
        done = await complete(engine, [*stem, 9, 8], max_tokens=8, seed=1)
        assert engine.stats().cached_prompt_tokens == 37
    expected = teacher_forced(weights.new_model(), [*stem, 9, 8], done.tokens, 1.0)
    assert done.logprobs == pytest.approx(expected, abs=2e-4)


async def test_reuse_stays_right_while_prefixes_are_evicted(tiny: TinyModels) -> None:
    weights = tiny("llama")
    prompts = [random_prompt(120, seed=i) for i in range(6)]  # 720 tokens
    async with running(weights, kv_bytes=2 * 400 * 256) as engine:  # 400 cached tokens
        for round_ in range(2):
            for i, prompt in enumerate(prompts):
                done = await complete(engine, prompt, max_tokens=12, seed=10 * round_ + i)
                expected = teacher_forced(weights.new_model(), prompt, done.tokens, 1.0)
                assert done.logprobs == pytest.approx(expected, abs=2e-4)
        stats = engine.stats()
    assert stats.cached_blocks <= stats.cache_blocks < 6 * 120 // 16


async def test_two_versions_of_one_adapter_never_share_kv(
    tiny: TinyModels, save_adapter: Callable[..., tuple[Path, torch.nn.Module]]
) -> None:
    weights = tiny("llama")
    prompt = random_prompt(100, seed=4)
    versions = [save_adapter(weights, f"v{step}", seed=step) for step in (1, 2)]
    refs = [AdapterRef("policy", step) for step in (1, 2)]
    async with running(weights) as engine:
        for ref, (folder, _) in zip(refs, versions, strict=True):
            await engine.load_adapter(ref, folder)
        calls = [(ref, seed) for _ in range(2) for seed in range(3) for ref in refs]
        done = await asyncio.gather(
            *[complete(engine, prompt, adapter=r, max_tokens=15, seed=seed) for r, seed in calls]
        )
        assert engine.stats().cached_prompt_tokens > 0
    for i, completion in enumerate(done):
        expected = teacher_forced(versions[i % 2][1], prompt, completion.tokens, 1.0)
        assert completion.logprobs == pytest.approx(expected, abs=2e-4)


async def test_waiting_for_a_prompt_ends_even_when_nothing_can_be_cached(tiny: TinyModels) -> None:
    """The pool is so full of running requests' prefixes that a new prompt doesn't fit."""
    weights = tiny("llama")
    long, shared = random_prompt(220, seed=1), random_prompt(60, seed=2)
    async with running(weights, kv_bytes=2 * 400 * 256) as engine:
        await complete(engine, long, max_tokens=1)
        holder = asyncio.create_task(complete(engine, long, max_tokens=30, seed=0))
        await asyncio.sleep(0.02)
        done = await asyncio.gather(
            *[complete(engine, shared, max_tokens=20, seed=i) for i in range(4)]
        )
        await holder
    for completion in done:
        expected = teacher_forced(weights.new_model(), shared, completion.tokens, 1.0)
        assert completion.logprobs == pytest.approx(expected, abs=2e-4)
