"""A server that somebody else runs: tried before it is used, left as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from art_core.engines.protocol import AdapterRef
from art_core.engines.vllm import VllmEngine, VllmOptions
from art_core.errors import AdapterError, ConfigError, EngineDiedError, EngineStartError
from tests.art_core.engines.vllm.conftest import BASE, Running
from tests.art_core.engines.vllm.fake_policy import logprob, policy_of
from tests.art_core.engines.vllm.talking import complete, until

BOT = AdapterRef("bot", 3)


async def attach(url: str, tmp_path: Path, **options: Any) -> VllmEngine:
    return await asyncio.to_thread(
        VllmEngine.attach, url, BASE, VllmOptions(**options), folder=tmp_path / "engine"
    )


async def test_it_is_used_and_left_as_it_was(
    elsewhere: Running, tmp_path: Path, adapter_folder: Callable[..., Path]
) -> None:
    elsewhere.start(key="secret")
    engine = await attach(f"{elsewhere.url}/v1", tmp_path, api_key="secret")
    await engine.load_adapter(BOT, adapter_folder("one"))
    done = await complete(engine, [1, 2, 3], adapter=BOT, max_tokens=1)
    assert done.logprobs == pytest.approx([logprob(policy_of(b"one"), [1, 2, 3], done.tokens[0])])
    limited = await complete(engine, [1, 2, 3], adapter=BOT, max_tokens=2, top_k=3)
    assert limited.forced == [True, True]
    assert await engine.score([1, 2, 3]) == pytest.approx(
        [logprob("base", [1], 2), logprob("base", [1, 2], 3)]
    )
    assert len(elsewhere.look()["adapters"]) == 1
    await engine.close()
    assert elsewhere.look()["adapters"] == []


REFUSED = [
    ({"logprobs_mode": "raw_logprobs"}, "leaves temperature out.*--logprobs-mode processed"),
    ({"logprobs_mode": "processed_logits"}, "logits instead of logprobs.*--logprobs-mode"),
    ({"top_k": 5}, "renormalises.*--generation-config vllm"),
]


@pytest.mark.parametrize(("fake", "message"), REFUSED)
async def test_logprobs_that_are_not_the_policys_are_refused(
    elsewhere: Running, tmp_path: Path, fake: dict[str, Any], message: str
) -> None:
    elsewhere.start(fake=fake)
    with pytest.raises(EngineStartError, match=message):
        await attach(elsewhere.url, tmp_path)


async def test_who_does_not_let_us_in(elsewhere: Running, tmp_path: Path) -> None:
    elsewhere.start(key="secret")
    with pytest.raises(EngineStartError, match=r"refuses the API key.*VllmOptions\(api_key="):
        await attach(elsewhere.url, tmp_path)


async def test_nobody_there(elsewhere: Running, tmp_path: Path) -> None:
    with pytest.raises(EngineStartError, match=r"didn't answer within 0 s.*Check the address"):
        await attach(elsewhere.url, tmp_path, patience=0)
    for url in ("", "gpu-box:8000", "ftp://gpu-box", "http://"):
        with pytest.raises(ConfigError, match="url is"):
            await attach(url, tmp_path)


async def test_a_server_that_loads_no_adapters(
    elsewhere: Running, tmp_path: Path, adapter_folder: Callable[..., Path]
) -> None:
    elsewhere.start(runtime_lora=False)
    engine = await attach(elsewhere.url, tmp_path)
    with pytest.raises(AdapterError, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"):
        await engine.load_adapter(BOT, adapter_folder("one"))
    await engine.close()


async def test_it_may_go_away_and_come_back(
    elsewhere: Running, tmp_path: Path, adapter_folder: Callable[..., Path]
) -> None:
    elsewhere.start(fake={"token_seconds": 0.02})
    engine = await attach(elsewhere.url, tmp_path)
    await engine.load_adapter(BOT, adapter_folder("one"))
    stream = asyncio.create_task(complete(engine, [1, 2], adapter=BOT, max_tokens=60, seed=1))
    await until(lambda: elsewhere.look()["running"] == 1)
    elsewhere.kill()
    await asyncio.sleep(0.2)
    await asyncio.to_thread(elsewhere.start)
    done = await stream
    whole = [1, 2, *done.tokens]
    assert len(done.tokens) == 60
    assert done.logprobs == pytest.approx(
        [logprob(policy_of(b"one"), whole[:at], whole[at]) for at in range(2, len(whole))]
    )
    await engine.close()


async def test_it_may_stay_away(elsewhere: Running, tmp_path: Path) -> None:
    elsewhere.start()
    engine = await attach(elsewhere.url, tmp_path, patience=0.5)
    elsewhere.kill()
    with pytest.raises(EngineDiedError, match=r"stopped working.*didn't answer"):
        await complete(engine, [1])
    await engine.close()


def test_options_of_the_wrong_kind_of_server() -> None:
    with pytest.raises(ConfigError, match="context_length, gpus can't be set"):
        VllmOptions(gpus=(0,), context_length=10).check(attached=True)
    with pytest.raises(ConfigError, match="api_key is only for"):
        VllmOptions(api_key="secret").check(attached=False)
    with pytest.raises(ConfigError, match="port is 70000"):
        VllmOptions(port=70000).check(attached=False)
    with pytest.raises(ConfigError, match=r"gpu_memory is 1\.5"):
        VllmOptions(gpu_memory=1.5).check(attached=False)
