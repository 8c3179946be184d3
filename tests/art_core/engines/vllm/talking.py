"""Ways to talk to an engine, and to look at its server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from art_core.engines.protocol import AdapterRef
from art_core.engines.vllm import VllmEngine
from art_core.trajectories.sampling import SamplingParams


@dataclass
class Completed:
    """A whole completion, put together from its chunks."""

    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    tops: list[dict[int, float]] = field(default_factory=list[dict[int, float]])
    forced: list[bool] = field(default_factory=list[bool])
    reason: str | None = None
    chunks: int = 0


async def complete(
    engine: VllmEngine, prompt: Sequence[int], *, adapter: AdapterRef | None = None, **sampling: Any
) -> Completed:
    done = Completed()
    async for chunk in engine.generate(prompt, SamplingParams(**sampling), adapter=adapter):
        done.tokens += chunk.token_ids
        done.logprobs += chunk.logprobs
        done.tops += chunk.top_logprobs
        done.forced += chunk.forced
        done.reason = chunk.finish_reason
        done.chunks += 1
    return done


def look(engine: VllmEngine) -> dict[str, Any]:
    """What the fake server says of itself."""
    return httpx.get(f"{engine.server.url}/look").json()


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        await asyncio.sleep(0.05)
