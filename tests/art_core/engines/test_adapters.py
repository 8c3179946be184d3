# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
"""Adapters come and go while requests run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from art_core.engines.protocol import AdapterRef
from art_core.errors import AdapterError

from .conftest import VOCAB, TinyModels, complete, random_prompt, running, teacher_forced

SaveAdapter = Callable[..., tuple[Path, torch.nn.Module]]


def ref(step: int) -> AdapterRef:
    return AdapterRef("policy", step)


@pytest.mark.parametrize("copies", [3, 2, 1, 0])
async def test_open_streams_end_on_the_version_they_began_with(
    tiny: TinyModels, save_adapter: SaveAdapter, copies: int
) -> None:
    """Five versions, one after another, with room for some of them as merged copies."""
    weights = tiny("llama")
    saved = [save_adapter(weights, f"v{step}", seed=step) for step in range(5)]
    linears = [m for m in weights.new_model().modules() if isinstance(m, torch.nn.Linear)]
    one = sum(m.weight.nbytes for m in linears if m.out_features != VOCAB)
    prompts = [random_prompt(60, seed=1), random_prompt(33, seed=2)]
    async with running(weights, copy_bytes=copies * one) as engine:
        tasks: list[tuple[int, int, asyncio.Task[Any]]] = []
        for step, (folder, _) in enumerate(saved):
            await engine.load_adapter(ref(step), folder)
            for i, prompt in enumerate(prompts):
                call = complete(engine, prompt, adapter=ref(step), max_tokens=80, seed=i)
                tasks.append((step, i, asyncio.create_task(call)))
                await asyncio.sleep(0.01)
        for step, i, task in tasks:
            done = await task
            expected = teacher_forced(saved[step][1], prompts[i], done.tokens, 1.0)
            assert done.logprobs == pytest.approx(expected, abs=2e-4)


async def test_unloading_waits_for_requests_and_forgets_their_kv(
    tiny: TinyModels, save_adapter: SaveAdapter
) -> None:
    weights = tiny("llama")
    folder, _ = save_adapter(weights, "v1")
    async with running(weights) as engine:
        await engine.load_adapter(ref(1), folder)
        await engine.load_adapter(ref(1), folder)  # the same again is no mistake
        task = asyncio.create_task(
            complete(engine, random_prompt(50, seed=1), adapter=ref(1), max_tokens=100)
        )
        await asyncio.sleep(0.05)
        unload = asyncio.create_task(engine.unload_adapter(ref(1)))
        assert len((await task).tokens) == 100
        await unload
        with pytest.raises(AdapterError, match="isn't loaded"):
            await complete(engine, [5], adapter=ref(1))
        await complete(engine, [5], max_tokens=1)  # a step, so that the chore is done
        assert engine.stats().cached_blocks <= 1
        other, reference = save_adapter(weights, "v1-again", seed=9)
        await engine.load_adapter(ref(1), other)
        prompt = random_prompt(50, seed=1)
        done = await complete(engine, prompt, adapter=ref(1), max_tokens=10)
        assert done.logprobs == pytest.approx(
            teacher_forced(reference, prompt, done.tokens, 1.0), abs=2e-4
        )


async def test_the_same_step_from_another_folder_is_refused(
    tiny: TinyModels, save_adapter: SaveAdapter
) -> None:
    weights = tiny("llama")
    async with running(weights) as engine:
        await engine.load_adapter(ref(1), save_adapter(weights, "a")[0])
        with pytest.raises(AdapterError, match="is loaded from"):
            await engine.load_adapter(ref(1), save_adapter(weights, "b")[0])


def _edit_config(folder: Path, **changes: Any) -> None:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def _edit_tensors(folder: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, file)


def _rename(tensors: dict[str, torch.Tensor]) -> None:
    key = next(k for k in tensors if "q_proj.lora_A" in k)
    tensors[key.replace("q_proj", "x_proj")] = tensors.pop(key)


def _halve(tensors: dict[str, torch.Tensor]) -> None:
    key = next(k for k in tensors if "lora_A" in k)
    tensors[key] = tensors[key][:, ::2].contiguous()


def _poison(tensors: dict[str, torch.Tensor]) -> None:
    next(iter(tensors.values()))[0, 0] = torch.nan


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda f: _edit_config(f, use_dora=True), "use_dora"),
        (lambda f: _edit_config(f, bias="all"), "bias"),
        (lambda f: _edit_config(f, peft_type="IA3"), "IA3"),
        (lambda f: (f / "adapter_config.json").unlink(), "adapter_config.json"),
        (lambda f: (f / "adapter_config.json").write_text("{"), "adapter_config.json"),
        (lambda f: (f / "adapter_model.safetensors").unlink(), "adapter_model"),
        (lambda f: (f / "adapter_model.safetensors").write_bytes(b"junk"), "adapter_model"),
        (lambda f: _edit_tensors(f, _rename), "other half"),
        (lambda f: _edit_tensors(f, _halve), "whose weight is"),
        (lambda f: _edit_tensors(f, _poison), "NaN"),
        (lambda f: _edit_tensors(f, lambda t: t.clear()), "empty"),
        (lambda f: _edit_tensors(f, lambda t: t.update(extra=torch.ones(1))), "extra"),
    ],
)
async def test_what_is_not_a_lora_of_this_base_is_refused(
    tiny: TinyModels, save_adapter: SaveAdapter, damage: Callable[[Path], object], reason: str
) -> None:
    weights = tiny("llama")
    folder, _ = save_adapter(weights, "adapter")
    damage(folder)
    async with running(weights) as engine:
        with pytest.raises(AdapterError, match=reason):
            await engine.load_adapter(ref(1), folder)
        with pytest.raises(AdapterError, match="isn't loaded"):
            await complete(engine, [5], adapter=ref(1))
