"""The embedded engine under load for an hour: does it leak, slow down or fail?

    python -m benchmarks.soak [--json] [--minutes N]

SmolLM2-135M behind the gateway and the record store; 16 agents play rollouts of three
turns without a pause. Every 20 s there is a new adapter and the oldest is unloaded;
one call in ten hangs up, and one in fifty asks for more than the context.

- ``mb_per_hour``: slope of a line through the memory taken, the first fifth left out.
- ``errors``: calls that failed and weren't meant to.
- ``speed_end_over_start``: tokens/s of the last fifth over those of the second.
- ``calls``, ``adapters``: how much was done.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from art_core.chat import chat_format_for
from art_core.engines.embedded import EmbeddedEngine, EmbeddedOptions
from art_core.engines.protocol import AdapterRef
from art_core.gateway import GatewayServer
from art_core.weights import resolve
from art_core.weights.loading import load
from benchmarks.engine import make_adapter
from benchmarks.gateway import Connection, serve
from benchmarks.report import report

AGENTS = 16
SWAP_SECONDS = 20.0
SAMPLE_SECONDS = 2.0


class Soak:
    """What goes on, and what was seen of it."""

    def __init__(self, server: GatewayServer, engine: EmbeddedEngine, end: float) -> None:
        self._server = server
        self._engine = engine
        self._end = end
        self.calls = 0
        self.adapters = 0
        self.errors: list[str] = []
        self.memory: list[tuple[float, float]] = []
        """Seconds and MB."""
        self.tokens: list[tuple[float, int]] = []

    @property
    def over(self) -> bool:
        return time.monotonic() > self._end

    async def agent(self, number: int) -> None:
        chance = random.Random(number)
        for game in itertools.count():
            if self.over:
                return
            ticket = self._server.open_rollout("bot", mode="train")
            connection = await Connection.to(self._server.url)
            path = f"/r/{ticket.rollout_id}/v1/chat/completions"
            messages = [{"role": "system", "content": f"You are agent {number} in game {game}."}]
            for turn in range(3):
                messages.append({"role": "user", "content": f"What is {turn} and {game}?"})
                body: dict[str, Any] = {
                    "model": "x",
                    "messages": messages,
                    "max_tokens": chance.randint(8, 48),
                }
                if chance.random() < 0.1:
                    connection = await self._hang_up(connection, path, body)
                    break
                try:
                    if chance.random() < 0.02:
                        connection = await self._too_long(connection, path, body)
                    answer = json.loads(await connection.post(path, body))
                except (RuntimeError, OSError, asyncio.IncompleteReadError) as error:
                    self.errors.append(repr(error)[:200])
                    break
                self.calls += 1
                messages.append(answer["choices"][0]["message"])
            connection.close()
            await self._server.aclose_rollout(ticket.rollout_id)

    async def swap(self, folder: Path) -> None:
        """New adapters, as a trainer publishes them."""
        while not self.over:
            await asyncio.sleep(SWAP_SECONDS)
            self.adapters += 1
            adapter = AdapterRef("bot", self.adapters)
            await self._engine.load_adapter(adapter, folder)
            self._server.set_adapter("bot", adapter)
            for version in self._server.unused_versions("bot"):
                self._server.retire_version("bot", version)
                if version:
                    await self._engine.unload_adapter(AdapterRef("bot", version))

    async def watch(self) -> None:
        process = psutil.Process()
        while not self.over:
            now = time.monotonic()
            self.memory.append((now, process.memory_info().rss / 1e6))
            self.tokens.append((now, self._engine.stats().sampled_tokens))
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _hang_up(self, connection: Connection, path: str, body: dict[str, Any]) -> Connection:
        asking = asyncio.create_task(connection.post(path, body))
        await asyncio.sleep(0.05)
        asking.cancel()
        connection.close()
        return await Connection.to(self._server.url)

    async def _too_long(
        self, connection: Connection, path: str, body: dict[str, Any]
    ) -> Connection:
        try:
            await connection.post(path, {**body, "max_tokens": 10**6})
        except RuntimeError:  # refused, as it should be
            connection.close()
            return await Connection.to(self._server.url)
        self.errors.append("a request longer than the context was served")
        return connection


def slope(points: list[tuple[float, float]]) -> float:
    """Of the least-squares line."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum(
        (x - mean_x) ** 2 for x, _ in points
    )


def rate(points: list[tuple[float, int]]) -> float:
    (t0, n0), (t1, n1) = points[0], points[-1]
    return (n1 - n0) / (t1 - t0)


async def soak(minutes: float, folder: Path) -> Soak:
    weights = load(resolve("smollm2-135m"))
    make_adapter(weights, folder / "adapter")
    # A prefix cache that is full within a minute: what grows behind it would be a leak.
    engine = EmbeddedEngine(weights, EmbeddedOptions(kv_bytes=2**29, copy_bytes=2**30))
    server, policy = serve(engine, chat_format_for(weights.tokenizer), str(folder))
    soak = Soak(server, engine, time.monotonic() + minutes * 60)
    jobs = [soak.agent(number) for number in range(AGENTS)]
    await asyncio.gather(*jobs, soak.swap(folder / "adapter"), soak.watch())
    await asyncio.to_thread(server.stop)
    policy.records.close()
    await engine.close()
    return soak


def main() -> None:
    words = sys.argv[1:]
    minutes = float(words[words.index("--minutes") + 1]) if "--minutes" in words else 60.0
    with tempfile.TemporaryDirectory() as folder:
        done = asyncio.run(soak(minutes, Path(folder)))
    fifth = len(done.memory) // 5
    figures = {
        "mb_per_hour": slope(done.memory[fifth:]) * 3600,
        "errors": len(done.errors),
        "speed_end_over_start": rate(done.tokens[-fifth:]) / rate(done.tokens[fifth : 2 * fifth]),
        "calls": done.calls,
        "adapters": done.adapters,
    }
    seen = {"minutes": minutes, "peak_mb": round(max(mb for _, mb in done.memory))}
    report("soak", figures, setup={**seen, "first_errors": "; ".join(done.errors[:3]) or "none"})


if __name__ == "__main__":
    main()
