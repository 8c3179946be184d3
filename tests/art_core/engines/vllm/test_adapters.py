"""Adapter versions on the fake server."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from art_core.engines.protocol import AdapterRef
from art_core.errors import AdapterError
from art_core.trajectories.sampling import SamplingParams
from tests.art_core.engines.vllm.conftest import Start
from tests.art_core.engines.vllm.fake_policy import logprob, policy_of
from tests.art_core.engines.vllm.talking import Completed, complete, look, until

PROMPT = [3, 1, 4, 1, 5]
BOT_1, BOT_2 = AdapterRef("bot", 1), AdapterRef("bot", 2)


def is_from(done: Completed, weights: str) -> bool:
    whole = [*PROMPT, *done.tokens]
    policy = policy_of(weights.encode())
    places = range(len(PROMPT), len(whole))
    return done.logprobs == pytest.approx([logprob(policy, whole[:at], whole[at]) for at in places])


async def test_versions_side_by_side_under_names_never_used_twice(
    start: Start, adapter_folder: Callable[..., Path]
) -> None:
    async with start() as engine:
        await engine.load_adapter(BOT_1, adapter_folder("one"))
        await engine.load_adapter(BOT_2, adapter_folder("two"))
        first, second = await asyncio.gather(
            complete(engine, PROMPT, adapter=BOT_1, max_tokens=8),
            complete(engine, PROMPT, adapter=BOT_2, max_tokens=8),
        )
        assert is_from(first, "one")
        assert is_from(second, "two")
        assert is_from(await complete(engine, PROMPT, adapter=BOT_1, max_tokens=8, top_k=3), "one")
        (one, two) = look(engine)["adapters"]
        assert one.startswith("bot@1.")
        assert two.startswith("bot@2.")

        await engine.unload_adapter(BOT_1)
        assert look(engine)["adapters"] == [two]
        with pytest.raises(AdapterError, match=r"bot@1 isn't loaded \(loaded: bot@2\)"):
            await complete(engine, PROMPT, adapter=BOT_1)
        await engine.load_adapter(BOT_1, adapter_folder("another"))
        assert is_from(await complete(engine, PROMPT, adapter=BOT_1, max_tokens=8), "another")
        assert one not in look(engine)["adapters"]


async def test_unloading_waits_for_those_who_use_it(
    start: Start, adapter_folder: Callable[..., Path]
) -> None:
    async with start({"token_seconds": 0.02}) as engine:
        await engine.load_adapter(BOT_1, adapter_folder("one"))
        chunks = engine.generate(PROMPT, SamplingParams(), adapter=BOT_1)
        await anext(chunks)
        unloading = asyncio.create_task(engine.unload_adapter(BOT_1))
        await asyncio.sleep(0.2)
        assert not unloading.done()
        assert len(look(engine)["adapters"]) == 1
        with pytest.raises(AdapterError, match="isn't loaded"):
            await complete(engine, PROMPT, adapter=BOT_1)
        await chunks.aclose()
        await unloading
        assert look(engine)["adapters"] == []


async def test_the_same_version_again(start: Start, adapter_folder: Callable[..., Path]) -> None:
    async with start() as engine:
        folder = adapter_folder("one")
        await engine.load_adapter(BOT_1, folder)
        await engine.load_adapter(BOT_1, folder)
        assert len(look(engine)["adapters"]) == 1
        with pytest.raises(AdapterError, match="a step of their own"):
            await engine.load_adapter(BOT_1, adapter_folder("other"))


async def test_what_cannot_be_loaded_leaves_nothing_behind(
    start: Start, adapter_folder: Callable[..., Path], tmp_path: Path
) -> None:
    async with start() as engine:
        with pytest.raises(AdapterError, match=r"no adapter_config\.json"):
            await engine.load_adapter(BOT_1, tmp_path)
        with pytest.raises(AdapterError, match=r"rank 32 is greater.*max_lora_rank"):
            await engine.load_adapter(BOT_1, adapter_folder("large", rank=32))
        assert list((tmp_path / "engine/adapters").iterdir()) == []
        with pytest.raises(AdapterError, match="can't unload"):
            await engine.unload_adapter(BOT_1)


async def test_a_restarted_server_has_them_again_even_if_the_checkpoint_is_gone(
    start: Start, adapter_folder: Callable[..., Path]
) -> None:
    async with start() as engine:
        folder = adapter_folder("one")
        await engine.load_adapter(BOT_1, folder)
        shutil.rmtree(folder)
        names = look(engine)["adapters"]
        before = engine.server.url
        engine.server.stop()  # behind the supervisor's back
        done = await complete(engine, PROMPT, adapter=BOT_1, max_tokens=8)
        assert is_from(done, "one")
        assert engine.server.url != before
        await until(lambda: look(engine)["adapters"] == names)
