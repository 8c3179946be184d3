"""What a swap to a new adapter costs those who are being served.

    python -m benchmarks.swap [--json] [--vllm PYTHON]

32 streams of SmolLM2-135M are open all the time; each that ends is followed by another on
the newest adapter. In every second window a new adapter is loaded, made current and the old
one unloaded, as after a training step. In every window 8 new requests are sent, a quarter
of a second apart, the first as the loading begins.

- ``failed``: requests that raised anything.
- ``added_ms``: median time to first token of the new requests in windows with a swap, less
  that in windows without.
- ``load_ms``: median time that loading takes.

Without ``--vllm`` on the embedded engine; else on a vLLM server started with that
interpreter, and the keys end in ``_vllm``.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import statistics
import tempfile
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from art_core.backends.choice import EngineChoice
from art_core.backends.engines import start_engine
from art_core.engines.protocol import AdapterRef, InferenceEngine
from art_core.engines.vllm import VllmOptions
from art_core.errors import ArtError
from art_core.trajectories.sampling import SamplingParams
from art_core.weights import resolve
from art_core.weights.loading import load
from benchmarks.engine import make_adapter
from benchmarks.report import report

STREAMS = 32
STREAM_TOKENS = 96
WINDOWS = 12
PROBES = 8
APART_SECONDS = 0.25
REST_SECONDS = 3.0


@dataclass
class Load:
    """Keeps the streams open and remembers which adapter is current."""

    engine: InferenceEngine
    folder: Path
    current: AdapterRef = field(default_factory=lambda: AdapterRef("benchmark", 1))
    failed: int = 0
    load_ms: list[float] = field(default_factory=list[float])
    numbers: random.Random = field(default_factory=lambda: random.Random(0))
    unloading: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def prompt(self) -> list[int]:
        return [self.numbers.randrange(20, 40_000) for _ in range(64)]

    async def stream(self) -> None:
        """One stream after another, until cancelled."""
        while True:
            # Of different lengths, so that they don't end together.
            length = self.numbers.randrange(STREAM_TOKENS // 2, STREAM_TOKENS * 3 // 2)
            await self.first_token(length, wait=True)

    async def first_token(self, length: int, *, wait: bool = False) -> float | None:
        """Milliseconds to the first token; ``wait``: read the others too."""
        started = time.perf_counter()
        first: float | None = None
        sampling = SamplingParams(max_tokens=length, seed=self.numbers.randrange(2**31))
        try:
            chunks = self.engine.generate(self.prompt(), sampling, adapter=self.current)
            async with aclosing(chunks):
                async for _ in chunks:
                    first = first or (time.perf_counter() - started) * 1000
                    if not wait:
                        break
        except ArtError as error:
            print(f"failed: {error}")
            self.failed += 1
        return first

    async def swap(self) -> None:
        """As `art_core.backends` does after a training step."""
        old, new = self.current, AdapterRef("benchmark", self.current.step + 1)
        started = time.perf_counter()
        await self.engine.load_adapter(new, self.folder)
        self.load_ms.append((time.perf_counter() - started) * 1000)
        self.current = new
        self.unloading.append(asyncio.create_task(self.engine.unload_adapter(old)))

    async def window(self, *, swapped: bool) -> list[float]:
        """The times to first token of its new requests, in milliseconds."""
        swap = asyncio.create_task(self.swap()) if swapped else None
        probes: list[asyncio.Task[float | None]] = []
        for _ in range(PROBES):
            probes.append(asyncio.create_task(self.first_token(4)))
            await asyncio.sleep(APART_SECONDS)
        times = [first for probe in probes if (first := await probe) is not None]
        if swap is not None:
            await swap
        await asyncio.sleep(REST_SECONDS)
        return times


async def measure(engine: InferenceEngine, folder: Path) -> dict[str, float]:
    load_ = Load(engine, folder)
    await engine.load_adapter(load_.current, folder)
    streams = [asyncio.create_task(load_.stream()) for _ in range(STREAMS)]
    await asyncio.sleep(REST_SECONDS * 2)
    await load_.window(swapped=True)  # the first warms up
    plain: list[float] = []
    swapped: list[float] = []
    for times, with_swap in itertools.islice(
        itertools.cycle([(plain, False), (swapped, True)]), WINDOWS
    ):
        times += await load_.window(swapped=with_swap)
    for stream in streams:
        stream.cancel()
    ended = await asyncio.gather(*streams, return_exceptions=True)
    unexpected = [each for each in ended if not isinstance(each, asyncio.CancelledError)]
    await asyncio.gather(*load_.unloading)
    return {
        "failed": load_.failed + len(unexpected),
        "added_ms": statistics.median(swapped) - statistics.median(plain),
        "first_token_ms": statistics.median(plain),
        "load_ms": statistics.median(load_.load_ms),
    }


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--vllm", type=Path, metavar="PYTHON")
    arguments = parser.parse_args()
    options = (
        None if arguments.vllm is None else VllmOptions(python=arguments.vllm, context_length=1024)
    )
    name = "embedded" if options is None else "vllm"
    weights = load(resolve("smollm2-135m"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_adapter(weights, folder / "adapter")
        choice = EngineChoice(name=name, vllm=options)
        engine = await asyncio.to_thread(
            start_engine, choice, weights, lora_rank=8, folder=folder / "engine"
        )
        try:
            figures = await measure(engine, folder / "adapter")
        finally:
            await engine.close()
    suffix = "" if options is None else "_vllm"
    report(
        "swap",
        {f"{key}{suffix}": value for key, value in figures.items()},
        setup={"model": "smollm2-135m", "engine": name, "dtype": engine.info.dtype},
    )


if __name__ == "__main__":
    asyncio.run(main())
