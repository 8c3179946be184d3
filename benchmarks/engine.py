# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The embedded engine against transformers' ``generate``, an adapter served by both.

    python -m benchmarks.engine [--json] [--vllm PYTHON]

- ``vs_generate``: 32 requests that share a 600-token prompt, 64 new tokens each;
  tokens/s of the engine over those of ``generate`` with the PEFT adapter on the
  same batch, both in the dtype that is best for this machine.
- ``tokens_per_second_distinct``: 32 requests of 64 tokens that share nothing, 128 new each.

With ``--vllm``, the interpreter of an environment with vLLM, also on those 32 requests:

- ``vs_vllm_adapter``: tokens/s over those of a vLLM server with the same adapter.
- ``vs_vllm_compiled``: over those of a vLLM server without adapters, compiled, its best.
- ``vllm_start_seconds``: from nothing to the first request, with adapters.

Medians of alternating runs; the engine starts each with an empty prefix cache.
"""

from __future__ import annotations

import argparse
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

from art_core.backends.choice import EngineChoice
from art_core.backends.engines import start_engine
from art_core.engines.embedded import EmbeddedEngine
from art_core.engines.protocol import AdapterRef, InferenceEngine
from art_core.engines.vllm import VllmOptions
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
    engine: InferenceEngine,
    ref: AdapterRef | None,
    prompts: Sequence[list[int]],
    new_tokens: int,
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


async def against_vllm(
    weights: BaseWeights, engine: EmbeddedEngine, python: Path, folder: Path
) -> dict[str, float]:
    """Both on requests that share nothing, by turns."""
    adapter_ours, adapter, started = await by_turns(weights, engine, python, folder, adapter=True)
    compiled_ours, compiled, _ = await by_turns(weights, engine, python, folder, adapter=False)
    return {
        "vs_vllm_adapter": adapter_ours / adapter,
        "vs_vllm_compiled": compiled_ours / compiled,
        "tokens_per_second_vllm_adapter": adapter,
        "tokens_per_second_vllm_compiled": compiled,
        "vllm_start_seconds": started,
    }


async def by_turns(
    weights: BaseWeights, engine: EmbeddedEngine, python: Path, folder: Path, *, adapter: bool
) -> tuple[float, float, float]:
    """Median tokens/s of ours and of vLLM, and the seconds that vLLM took to start."""
    options = VllmOptions(
        python=python, context_length=1024, arguments=() if adapter else ("--no-enable-lora",)
    )
    began = time.perf_counter()
    vllm = await asyncio.to_thread(
        start_engine,
        EngineChoice(name="vllm", vllm=options),
        weights,
        lora_rank=8,
        folder=folder.parent / "vllm",
    )
    started = time.perf_counter() - began
    rates: dict[str, list[float]] = {"ours": [], "vllm": []}
    try:
        for round_ in range(ROUNDS + 1):
            ref = AdapterRef("against-vllm", round_ + (0 if adapter else 100))
            prompts = random_prompts(REQUESTS, 64, seed=200 + ref.step)
            for name, each in (("ours", engine), ("vllm", vllm)):
                used = None if each is vllm and not adapter else ref
                if used is not None:
                    await each.load_adapter(used, folder)
                rates[name].append(await engine_rate(each, used, prompts, 128))
                if used is not None:
                    await each.unload_adapter(used)
    finally:
        await vllm.close()
    # The first warms up.
    return statistics.median(rates["ours"][1:]), statistics.median(rates["vllm"][1:]), started


async def measure(vllm_python: Path | None) -> None:
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
        more: dict[str, float] = {}
        if vllm_python is not None:
            more = await against_vllm(weights, engine, vllm_python, folder)
        await engine.close()
    rate, reference = statistics.median(ours), statistics.median(theirs)
    report(
        "engine",
        {
            "vs_generate": rate / reference,
            "tokens_per_second_shared": rate,
            "tokens_per_second_generate": reference,
            "tokens_per_second_distinct": statistics.median(distinct),
            **more,
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
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--vllm", type=Path, metavar="PYTHON")
    asyncio.run(measure(parser.parse_args().vllm))
