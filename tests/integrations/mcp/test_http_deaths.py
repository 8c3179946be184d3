"""A server behind a URL that dies in the middle: only others can start it again."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from art_core.errors import ToolServerStartError
from art_core.rollouts import TrainableModel
from integrations.mcp import HttpServer, MCPAgent, ServerPool, Timeouts
from tests.integrations.mcp.conftest import HttpProcess
from tests.integrations.mcp.scripted import task

Policy = TrainableModel[Any]


def pool_on(process: HttpProcess, protocol: str, restart: float = 60.0) -> ServerPool:
    pool = ServerPool(
        HttpServer(url=process.url), isolation="shared", timeouts=Timeouts(restart=restart)
    )
    if protocol == "old":  # has sessions, which a server that starts again knows nothing of
        pool._negotiated.modes["server"] = "legacy"  # pyright: ignore[reportPrivateUsage]
    return pool


@pytest.mark.parametrize("protocol", ["new", "old"])
async def test_rollouts_are_played_again_when_it_is_back(
    policy: Policy, http_process: HttpProcess, tmp_path: Path, protocol: str
) -> None:
    def supervise() -> None:
        http_process.wait()
        time.sleep(1)
        http_process.start()

    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    dying = task([("die_once", {"marker": str(tmp_path / "died")})], "ok")
    async with pool_on(http_process, protocol) as pool:
        agent = MCPAgent(policy, pool)
        played = await asyncio.gather(*(agent.play(dying) for _ in range(4)))
        restarts = pool.restarts
    supervisor.join()
    assert [one.metadata["answer"] for one in played] == ["ok"] * 4
    assert max(one.metrics["server_deaths"] for one in played) == 1
    assert restarts >= 1


@pytest.mark.parametrize("protocol", ["new", "old"])
async def test_one_that_was_started_again_between_rollouts(
    policy: Policy, http_process: HttpProcess, protocol: str
) -> None:
    async with pool_on(http_process, protocol) as pool:
        agent = MCPAgent(policy, pool)
        asking = task([("authorization", {})], "ok")
        await agent.play(asking)
        http_process.stop()
        http_process.start()
        played = await agent.play(asking)
    (call,) = played.metadata["mcp_calls"]  # type: ignore[misc]
    assert call["result"] == "None"  # type: ignore[index]


async def test_one_that_stays_away_is_named(
    policy: Policy, http_process: HttpProcess, tmp_path: Path
) -> None:
    dying = task([("die_once", {"marker": str(tmp_path / "died")})], "ok")
    async with pool_on(http_process, "new", restart=1.0) as pool:
        agent = MCPAgent(policy, pool)
        started = time.monotonic()
        with pytest.raises(ToolServerStartError, match=r"server \(http://127.0.0.1"):
            await agent.play(dying)
        assert time.monotonic() - started > 1.0
        again = time.monotonic()
        with pytest.raises(ToolServerStartError):  # and isn't waited for by every rollout
            await agent.play(dying)
        assert time.monotonic() - again < 1.0
