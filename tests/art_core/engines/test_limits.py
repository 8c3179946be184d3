# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""What happens at the edges: cancellation, full queues, full memory, long prompts, NaN."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import pytest
import torch

from art_core.engines.embedded import EmbeddedEngine, EmbeddedOptions
from art_core.engines.protocol import AdapterRef
from art_core.errors import (
    AdapterError,
    ContextLengthError,
    EngineDiedError,
    EngineError,
    EngineOverloadedError,
)
from art_core.trajectories.sampling import SamplingParams
from art_core.weights.loading import BaseWeights

from .conftest import TinyModels, complete, random_prompt, running

TOKEN_BYTES = 2 * 2 * 2 * 8 * 4
"""KV of one token of the tiny Llama: layers x heads x (key + value) x dim x float32."""


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.005)


async def test_closing_the_generator_frees_everything(tiny: TinyModels) -> None:
    async with running(tiny("llama")) as engine:
        streams = [
            engine.generate(random_prompt(50, seed=i), SamplingParams(max_tokens=400))
            for i in range(5)
        ]
        for stream in streams:
            await anext(stream)
        assert engine.stats().kv_tokens > 0
        for stream in streams:
            await stream.aclose()
        await until(lambda: engine.stats().running == 0)
        assert engine.stats().kv_tokens == 0


async def test_a_cancelled_task_frees_its_request_while_it_waits(tiny: TinyModels) -> None:
    async with running(tiny("llama"), max_running=1) as engine:
        tasks = [
            asyncio.create_task(complete(engine, random_prompt(9, seed=i), max_tokens=400))
            for i in range(3)
        ]
        await until(lambda: engine.stats().running == 1)
        for task in tasks:
            task.cancel()
        await until(lambda: engine.stats().running + engine.stats().waiting == 0)
        assert (await complete(engine, [5, 6], max_tokens=3)).reason == "length"


async def test_a_full_queue_refuses_and_recovers(tiny: TinyModels) -> None:
    async with running(tiny("llama"), max_running=1, max_waiting=2) as engine:
        tasks = [
            asyncio.create_task(complete(engine, random_prompt(9, seed=i), max_tokens=100))
            for i in range(12)
        ]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        refused = [r for r in results if isinstance(r, EngineOverloadedError)]
        assert len(refused) >= 8
        assert sum(getattr(r, "reason", None) == "length" for r in results) == 12 - len(refused)
        assert (await complete(engine, [5], max_tokens=2)).reason == "length"


async def test_short_memory_preempts_and_changes_nothing(tiny: TinyModels) -> None:
    weights = tiny("llama")
    prompts = [random_prompt(40, seed=i) for i in range(8)]

    async def all_of_them(engine: EmbeddedEngine) -> list[list[int]]:
        done = await asyncio.gather(
            *[complete(engine, p, max_tokens=100, seed=i) for i, p in enumerate(prompts)]
        )
        return [d.tokens for d in done]

    async with running(weights) as engine:
        expected = await all_of_them(engine)
        assert engine.stats().preemptions == 0
    async with running(weights, kv_bytes=2 * 560 * TOKEN_BYTES) as engine:
        assert await all_of_them(engine) == expected
        stats = engine.stats()
        assert stats.preemptions > 0
        assert stats.kv_tokens == 0


async def test_stop_tokens_end_and_are_included(tiny: TinyModels) -> None:
    prompt = random_prompt(20, seed=1)
    async with running(tiny("llama")) as engine:
        free = await complete(engine, prompt, temperature=0, max_tokens=20)
        stop = free.tokens[4]
        first = free.tokens.index(stop)
        done = await complete(
            engine, prompt, temperature=0, max_tokens=20, stop_token_ids=(stop, 1)
        )
    assert (done.tokens, done.reason) == (free.tokens[: first + 1], "stop")
    assert (len(free.tokens), free.reason) == (20, "length")


async def test_context_limits(tiny: TinyModels) -> None:
    async with running(tiny("llama")) as engine:
        context = engine.info.context_length
        assert context == 512
        for length, max_tokens in [(0, None), (512, None), (500, 13)]:
            with pytest.raises(ContextLengthError):
                await complete(engine, [5] * length, max_tokens=max_tokens)
        whole = await complete(engine, [5] * 500)  # as many as there is room for
        assert (len(whole.tokens), whole.reason) == (12, "length")
        assert len((await complete(engine, [5] * 500, max_tokens=12)).tokens) == 12
        for prompt, bias in [([5, 100_000], {}), ([-1], {}), ([5], {160: 1.0})]:
            with pytest.raises(EngineError, match="vocabulary"):
                await complete(engine, prompt, logit_bias=bias)
        with pytest.raises(EngineError, match="finite"):
            await complete(engine, [5], logit_bias={3: math.inf})


async def test_the_context_is_no_longer_than_memory_allows(tiny: TinyModels) -> None:
    async with running(tiny("llama"), kv_bytes=2 * 200 * TOKEN_BYTES) as engine:
        assert engine.info.context_length == 128
        assert len((await complete(engine, [5] * 100, max_tokens=28)).tokens) == 28
    with pytest.raises(EngineError, match="kv_bytes"):
        EmbeddedEngine(tiny("llama"), EmbeddedOptions(kv_bytes=20 * TOKEN_BYTES))


def damage(weights: BaseWeights) -> tuple[BaseWeights, int]:
    """Weights in which one token's embedding is NaN."""
    model = weights.new_model()
    broken = 77
    embeddings: Any = model.get_input_embeddings()
    table = embeddings.weight
    table.data = table.data.clone()
    table.data[broken] = torch.nan
    return BaseWeights(weights.files, weights.tokenizer, model), broken


async def test_nan_fails_one_request_and_no_other(tiny: TinyModels) -> None:
    weights, broken = damage(tiny("qwen3"))
    prompts = [random_prompt(30, seed=i) for i in range(4)]
    prompts = [[t if t != broken else 5 for t in p] for p in prompts]
    bias = {broken: -100.0}
    async with running(weights) as engine:
        healthy = [
            complete(engine, p, max_tokens=60, seed=i, logit_bias=bias)
            for i, p in enumerate(prompts)
        ]
        bad = [complete(engine, [*p[:20], broken], max_tokens=60) for p in prompts[:2]]
        results = await asyncio.gather(*healthy, *bad, return_exceptions=True)
        again = await complete(engine, prompts[0], max_tokens=60, seed=0, logit_bias=bias)
    assert [isinstance(r, EngineError) for r in results] == [False] * 4 + [True] * 2
    assert "aren't finite" in str(results[-1])
    assert getattr(results[0], "tokens", None) == again.tokens


async def test_an_engine_that_dies_tells_everyone(
    tiny: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tiny("llama")) as engine:
        task = asyncio.create_task(complete(engine, [5, 6], max_tokens=400))
        await until(lambda: engine.stats().running == 1)

        def explode(*_: object) -> None:
            raise MemoryError("no memory left")

        monkeypatch.setattr("art_core.engines.embedded.runner.sample", explode)
        with pytest.raises(EngineDiedError, match="no memory left"):
            await task
        with pytest.raises(EngineDiedError, match="no memory left"):
            await complete(engine, [5], max_tokens=1)


async def test_closing_fails_what_runs(tiny: TinyModels) -> None:
    others = set(threading.enumerate())
    async with running(tiny("llama")) as engine:
        task = asyncio.create_task(complete(engine, [5, 6], max_tokens=400))
        await until(lambda: engine.stats().running == 1)
        await engine.close()
        with pytest.raises(EngineDiedError, match="closed"):
            await task
    started = [t for t in threading.enumerate() if t not in others]
    assert not any(t.name == "art-embedded-engine" and t.is_alive() for t in started)


async def test_any_number_of_event_loops(tiny: TinyModels) -> None:
    async with running(tiny("llama")) as engine:
        expected = (await complete(engine, [5, 6, 7], max_tokens=30, seed=1)).tokens
        results: list[list[int]] = []

        def other_loop() -> None:
            results.append(asyncio.run(complete(engine, [5, 6, 7], max_tokens=30, seed=1)).tokens)

        await asyncio.gather(*[asyncio.to_thread(other_loop) for _ in range(3)])
        assert results == [expected] * 3


async def test_an_unknown_adapter_is_an_error(tiny: TinyModels) -> None:
    async with running(tiny("llama")) as engine:
        with pytest.raises(AdapterError, match="policy@3 isn't loaded"):
            await complete(engine, [5], adapter=AdapterRef("policy", 3))
