# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The real built-in model: what it says, and that the engine says the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from art_core.weights import resolve
from art_core.weights.loading import BaseWeights, load

from .conftest import complete, running, teacher_forced


@pytest.fixture(scope="module")
def smollm2(smollm2_folder: Path) -> BaseWeights:
    return load(resolve(str(smollm2_folder)), dtype="float32", device="cpu")


def ask(weights: BaseWeights, question: str) -> list[int]:
    tokenizer: Any = weights.tokenizer
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
    )
    return tokenizer(text)["input_ids"]


async def test_it_answers_as_generate_does_and_sensibly(smollm2: BaseWeights) -> None:
    questions = ["What is the capital of France?", "What is 2 + 2?"]
    prompts = [ask(smollm2, question) for question in questions]
    model: Any = smollm2.new_model()
    model.generation_config = GenerationConfig(
        max_new_tokens=12, do_sample=False, eos_token_id=2, pad_token_id=2
    )
    expected = [model.generate(torch.tensor([p]))[0, len(p) :].tolist() for p in prompts]
    async with running(smollm2, kv_bytes=1 << 28) as engine:
        done = await asyncio.gather(
            *[
                complete(engine, p, temperature=0, max_tokens=12, stop_token_ids=(2,))
                for p in prompts
            ]
        )
    assert [d.tokens for d in done] == expected
    tokenizer: Any = smollm2.tokenizer
    assert tokenizer.decode(done[0].tokens) == "The capital of France is Paris.<|im_end|>"
    for prompt, completion in zip(prompts, done, strict=True):
        exact = teacher_forced(smollm2.new_model(), prompt, completion.tokens, 1.0)
        assert completion.logprobs == pytest.approx(exact, abs=2e-4)


@pytest.mark.long
async def test_deterministic_mode_on_real_shapes(smollm2: BaseWeights) -> None:
    prompt = ask(smollm2, "Name three colours.")
    results: list[list[float]] = []
    async with running(smollm2, kv_bytes=1 << 28, deterministic=True, max_running=8) as engine:
        for company in (0, 5):
            others = [
                asyncio.create_task(complete(engine, prompt[: 9 + i], max_tokens=9))
                for i in range(company)
            ]
            results.append((await complete(engine, prompt, max_tokens=16, seed=3)).logprobs)
            await asyncio.gather(*others)
    assert results[0] == results[1]
