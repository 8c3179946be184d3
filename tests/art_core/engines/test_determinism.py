"""The same request gives the same tokens in any company; in deterministic mode the same bits."""

from __future__ import annotations

import asyncio

from .conftest import Completed, TinyModels, complete, random_prompt, running

PROMPT = random_prompt(150, seed=1)


async def crowd(tiny: TinyModels, *, company: int, **options: object) -> list[Completed]:
    """One request, twice, among ``company`` others that come and go."""
    async with running(tiny("llama"), **options) as engine:
        others = [
            asyncio.create_task(
                complete(engine, PROMPT[: 20 * i] + random_prompt(30, seed=i), max_tokens=20 + i)
            )
            for i in range(company)
        ]
        first = await complete(engine, PROMPT, temperature=0.9, max_tokens=60, seed=42)
        again = await complete(engine, PROMPT, temperature=0.9, max_tokens=60, seed=42)
        await asyncio.gather(*others)
    return [first, again]


async def test_a_seed_gives_the_same_tokens_alone_and_in_a_crowd(tiny: TinyModels) -> None:
    alone = await crowd(tiny, company=0)
    crowded = await crowd(tiny, company=9)
    assert {tuple(c.tokens) for c in alone + crowded} == {tuple(alone[0].tokens)}


async def test_deterministic_mode_gives_the_same_bits(tiny: TinyModels) -> None:
    options = {"deterministic": True, "max_running": 8}
    runs = await crowd(tiny, company=0, **options)
    runs += await crowd(tiny, company=9, **options)
    # With so little memory that requests are preempted and computed again.
    runs += await crowd(tiny, company=9, kv_bytes=2 * 640 * 256, **options)
    assert all(run == runs[0] for run in runs)


async def test_deterministic_mode_reuses_prompts(tiny: TinyModels) -> None:
    async with running(tiny("llama"), deterministic=True, max_running=4) as engine:
        first = await complete(engine, PROMPT, max_tokens=10, seed=1)
        second = await complete(engine, PROMPT, max_tokens=10, seed=1)
        assert engine.stats().cached_prompt_tokens == 128
    assert first == second
