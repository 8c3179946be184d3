"""An engine that is short of memory, or hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from art_core.engines.embedded.runner import Runner
from art_core.engines.embedded.scheduler import Work
from art_core.engines.protocol import AdapterRef
from art_core.errors import EngineDiedError, EngineOverloadedError
from tests.art_core.engines.conftest import TinyModels, complete, random_prompt, running

Run = Callable[..., Any]
SaveAdapter = Callable[..., tuple[Path, torch.nn.Module]]


def short_of_memory(monkeypatch: pytest.MonkeyPatch, enough_for: int) -> None:
    """Steps of more requests fail as PyTorch's CPU allocator does."""
    original: Run = Runner.run

    def run(self: Runner, model: object, works: Sequence[Work]) -> object:
        if len(works) > enough_for:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to …")
        return original(self, model, works)

    monkeypatch.setattr(Runner, "run", run)


@pytest.mark.parametrize("deterministic", [False, True])
async def test_short_memory_halves_the_step_and_changes_nothing(
    tiny: TinyModels, monkeypatch: pytest.MonkeyPatch, deterministic: bool
) -> None:
    prompts = [random_prompt(20, seed=i) for i in range(6)]
    async with running(tiny("llama"), deterministic=deterministic) as engine:

        async def all_of_them() -> list[list[int]]:
            jobs = [complete(engine, p, max_tokens=8, seed=i) for i, p in enumerate(prompts)]
            return [answer.tokens for answer in await asyncio.gather(*jobs)]

        expected = await all_of_them()
        short_of_memory(monkeypatch, enough_for=2)
        assert await all_of_them() == expected


async def test_a_request_that_is_too_much_alone_fails_alone(
    tiny: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tiny("llama")) as engine:
        with monkeypatch.context() as patched:
            short_of_memory(patched, enough_for=0)
            with pytest.raises(EngineOverloadedError, match=r"out of memory while computing"):
                await complete(engine, [5, 6], max_tokens=4)
        assert len((await complete(engine, [5, 6], max_tokens=4)).tokens) == 4
        assert engine.stats().running == 0


async def test_a_step_that_hangs_is_given_up_and_says_where(
    tiny: TinyModels, monkeypatch: pytest.MonkeyPatch, save_adapter: SaveAdapter
) -> None:
    weights, adapter = tiny("llama"), AdapterRef("policy", 1)
    folder, _ = save_adapter(weights, "adapter")
    go_on = threading.Event()

    def hanging_kernel(*_: object) -> object:
        go_on.wait(30)
        return []

    try:
        async with running(weights, step_seconds=0.3) as engine:
            await engine.load_adapter(adapter, folder)
            monkeypatch.setattr(Runner, "run", hanging_kernel)
            with pytest.raises(EngineDiedError, match=r"(?s)more than 0\.3 s.*hanging_kernel"):
                await complete(engine, [5, 6], max_tokens=4, adapter=adapter)
            with pytest.raises(EngineDiedError, match="hangs"):
                await complete(engine, [5], max_tokens=1)
            with pytest.raises(EngineDiedError, match="hangs"):  # its last request never ends
                await engine.unload_adapter(adapter)
            await asyncio.wait_for(engine.close(), 5)  # leaves the thread behind
    finally:
        go_on.set()
