# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The embedded engine against transformers' ``generate``, an adapter served by both.

    python -m benchmarks.engine [--json]

- ``vs_generate``: 32 requests that share a 600-token prompt, 64 new tokens each;
  tokens/s of the engine over those of ``generate`` with the PEFT adapter on the
  same batch, both in the dtype that is best for this machine.
- ``tokens_per_second_distinct``: 32 requests of 64 tokens that share nothing, 128 new each.

Medians of alternating runs; the engine starts each with an empty prefix cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import GenerationConfig

from art_core.engines.embedded import EmbeddedEngine
from art_core.engines.protocol import AdapterRef
from art_core.trajectories.sampling import SamplingParams
from art_core.weights import resolve
from art_core.weights.loading import BaseWeights, load
from benchmarks.report import report

REQUESTS = 32
ROUNDS = 3


def make_adapter(weights: BaseWeights, folder: Path) -> None:
    """A random rank-8 adapter on all linear layers, small enough to leave sense in the text."""
    torch.manual_seed(0)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        model = get_peft_model(
            weights.new_model(), LoraConfig(r=8, lora_alpha=16, target_modules="all-linear")
        )
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.data.normal_(std=1e-3)
        model.save_pretrained(str(folder))


def random_prompts(count: int, length: int, seed: int) -> list[list[int]]:
    numbers = random.Random(seed)
    return [[numbers.randrange(20, 40_000) for _ in range(length)] for _ in range(count)]


async def engine_rate(
    engine: EmbeddedEngine, ref: AdapterRef, prompts: Sequence[list[int]], new_tokens: int
) -> float:
    """Sampled tokens per second, all requests sent at once."""

    async def one(prompt: list[int], seed: int) -> int:
        sampling = SamplingParams(max_tokens=new_tokens, seed=seed)
        return sum([len(c.token_ids) async for c in engine.generate(prompt, sampling, adapter=ref)])

    started = time.perf_counter()
    counts = await asyncio.gather(*[one(p, seed) for seed, p in enumerate(prompts)])
    return sum(counts) / (time.perf_counter() - started)


def generate_rate(model: PeftModel, prompts: Sequence[list[int]], new_tokens: int) -> float:
    """The same through ``generate``: one batch, sampling, its KV cache on."""
    ids = torch.tensor(prompts, device=model.device)
    settings = GenerationConfig(
        max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=True, pad_token_id=0
    )
    started = time.perf_counter()
    output = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=settings
    )
    sampled = output.shape[0] * (output.shape[1] - ids.shape[1])
    return sampled / (time.perf_counter() - started)


async def measure() -> None:
    weights = load(resolve("smollm2-135m"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "adapter"
        make_adapter(weights, folder)
        peft = PeftModel.from_pretrained(weights.new_model(), folder).eval()
        engine = EmbeddedEngine(weights)
        ours: list[float] = []
        theirs: list[float] = []
        distinct: list[float] = []
        for round_ in range(ROUNDS):
            # A version of its own in every round: nothing is cached from the last.
            ref = AdapterRef("benchmark", round_)
            await engine.load_adapter(ref, folder)
            shared = random_prompts(1, 600, seed=round_) * REQUESTS
            ours.append(await engine_rate(engine, ref, shared, 64))
            apart = random_prompts(REQUESTS, 64, seed=100 + round_)
            distinct.append(await engine_rate(engine, ref, apart, 128))
            theirs.append(generate_rate(peft, shared, 64))
            await engine.unload_adapter(ref)
        await engine.close()
    rate, reference = statistics.median(ours), statistics.median(theirs)
    report(
        "engine",
        {
            "vs_generate": rate / reference,
            "tokens_per_second_shared": rate,
            "tokens_per_second_generate": reference,
            "tokens_per_second_distinct": statistics.median(distinct),
        },
        setup={
            "model": "smollm2-135m",
            "dtype": engine.info.dtype,
            "device": engine.info.device,
            "threads": torch.get_num_threads(),
            "rounds": ROUNDS,
        },
    )


if __name__ == "__main__":
    asyncio.run(measure())
