# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""A real vLLM server on the CPU, and SmolLM2-135M. Run by ``make test-vllm``."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import warnings
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
import torch
from peft import LoraConfig, get_peft_model

import art_core as art
from art_core.backends.choice import EngineChoice
from art_core.backends.engines import start_engine
from art_core.engines.protocol import AdapterRef
from art_core.engines.vllm import VllmEngine, VllmOptions
from art_core.errors import AdapterError, EngineStartError
from art_core.trajectories import CompletionStatus
from art_core.trajectories.sampling import SamplingParams
from art_core.weights import resolve
from art_core.weights.loading import BaseWeights, load
from tests.art_core.engines.vllm.talking import complete, until

pytestmark = [pytest.mark.long, pytest.mark.vllm, pytest.mark.timeout(900)]

ROUNDING = 2e-3
"""float32 on both sides."""
TEXT = list(range(1000, 1080))


@pytest.fixture(scope="module")
def vllm_python() -> Path:
    python = os.environ.get("ART_VLLM_PYTHON")
    if python is None:
        pytest.fail("ART_VLLM_PYTHON isn't set: run `make test-vllm`")
    return Path(python)


@pytest.fixture(scope="module")
def weights() -> BaseWeights:
    return load(resolve("smollm2-135m"), dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def adapters(weights: BaseWeights, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Random adapters that change what is said."""

    def make(seed: int, rank: int = 8) -> Path:
        torch.manual_seed(seed)
        config = LoraConfig(r=rank, target_modules="all-linear")
        with warnings.catch_warnings(action="ignore"):  # PEFT's, about transformers 6
            model: Any = get_peft_model(weights.new_model(), config)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.data.normal_(std=0.02)
        folder = tmp_path_factory.mktemp("adapters") / str(seed)
        model.save_pretrained(str(folder))
        return folder

    return make


def start(weights: BaseWeights, folder: Path, python: Path, **options: Any) -> VllmEngine:
    settings: dict[str, Any] = {"python": python, "context_length": 1024, **options}
    choice = EngineChoice(name="vllm", vllm=VllmOptions(**settings))
    engine = start_engine(choice, weights, lora_rank=8, folder=folder)
    assert isinstance(engine, VllmEngine)
    return engine


def processes(engine: VllmEngine) -> list[psutil.Process]:
    group: Any = engine.server
    return psutil.Process(group.process_id).children(recursive=True)


async def test_the_engine(
    weights: BaseWeights, adapters: Callable[..., Path], vllm_python: Path, tmp_path: Path
) -> None:
    engine = await asyncio.to_thread(start, weights, tmp_path, vllm_python)
    try:
        await check_logprobs(engine, weights)
        await check_adapters(engine, adapters)
        await check_cancelling(engine)
        everything = processes(engine)
        assert len(everything) >= 2
    finally:
        await engine.close()
    _, alive = psutil.wait_procs(everything, timeout=5)
    assert alive == []


async def check_logprobs(engine: VllmEngine, weights: BaseWeights) -> None:
    """As PyTorch has them, with temperature and bias, restricted or not."""
    model: Any = weights.new_model()
    cases: list[dict[str, Any]] = [
        {},
        {"temperature": 0.6},
        {"temperature": 0},
        {"logit_bias": {28: 5.0, 30: -100.0}},
        {"top_p": 0.5},
        {"top_k": 3, "top_logprobs": 4},
        {"grammar": 'start: "yes" | "no" | "maybe not"', "stop_token_ids": (2,)},
    ]
    for case in cases:
        done = await complete(engine, TEXT, max_tokens=12, seed=3, **case)
        whole = torch.tensor([[*TEXT, *done.tokens]])
        with torch.no_grad():
            logits = model(input_ids=whole).logits[0, len(TEXT) - 1 : -1].float()
        for token, bias in case.get("logit_bias", {}).items():
            logits[:, token] += bias
        table = torch.log_softmax(logits / (case.get("temperature") or 1.0), -1)
        theirs = table.gather(1, torch.tensor(done.tokens)[:, None]).squeeze(1).tolist()
        assert done.logprobs == pytest.approx(theirs, abs=ROUNDING), case
        for place, top in zip(table, done.tops, strict=False):
            assert list(top) == place.topk(4).indices.tolist()
        if "grammar" in case:  # once "maybe" has begun there is no choice
            assert {True, False} == set(done.forced)


async def check_adapters(engine: VllmEngine, adapters: Callable[..., Path]) -> None:
    """A name given to other weights isn't served with the first ones' KV."""
    ref, other = AdapterRef("bot", 1), AdapterRef("other", 1)
    one, two = adapters(1), adapters(2)
    shutil.copytree(two, two.with_name("copy"))
    await engine.load_adapter(ref, one)
    first = await complete(engine, TEXT, adapter=ref, max_tokens=8, temperature=0)
    bare = await complete(engine, TEXT, max_tokens=8, temperature=0)
    assert first.logprobs != pytest.approx(bare.logprobs, abs=ROUNDING)
    await engine.unload_adapter(ref)
    await engine.load_adapter(ref, two)
    again = await complete(engine, TEXT, adapter=ref, max_tokens=8, temperature=0)
    await engine.load_adapter(other, two.with_name("copy"))
    fresh = await complete(engine, TEXT, adapter=other, max_tokens=8, temperature=0)
    assert again.tokens == fresh.tokens
    assert again.logprobs == pytest.approx(fresh.logprobs, abs=ROUNDING)
    assert again.logprobs != pytest.approx(first.logprobs, abs=ROUNDING)
    # Scored in a batch with others, which vLLM dies of where the output head is adapted.
    limited = await asyncio.gather(
        *(
            complete(
                engine, TEXT, adapter=other, max_tokens=8, temperature=0, grammar="start: /.*/s"
            )
            for _ in range(4)
        ),
        complete(engine, TEXT, adapter=ref, max_tokens=8),
    )
    assert limited[0].logprobs == pytest.approx(fresh.logprobs, abs=ROUNDING)
    with pytest.raises(AdapterError, match=r"rank.*max_lora_rank"):
        await engine.load_adapter(AdapterRef("large", 1), adapters(3, rank=32))


async def check_cancelling(engine: VllmEngine) -> None:
    server = next(each for each in processes(engine) if is_api_server(each))
    chunks = engine.generate(TEXT, SamplingParams())
    async with aclosing(chunks):
        await anext(chunks)
        await until(lambda: metric(server, "num_requests_running") == 1)
    await until(lambda: metric(server, "num_requests_running") == 0)


async def test_training_with_the_server_killed_amid_32_rollouts(
    vllm_python: Path, tmp_path: Path
) -> None:
    options = VllmOptions(python=vllm_python, context_length=1024)
    async with art.LocalBackend(tmp_path, engine="vllm", vllm=options, dtype="float32") as backend:
        model = art.TrainableModel[None](
            name="bot", project="tests", base_model="smollm2-135m", lora=art.LoraConfig(rank=4)
        )
        await model.register(backend)
        rollouts = [asyncio.create_task(play(model, number)) for number in range(32)]
        victim = next(p for p in psutil.Process().children(recursive=True) if is_api_server(p))
        await until(lambda: metric(victim, "generation_tokens_total") > 200, seconds=120)
        assert metric(victim, "num_requests_running") > 8
        victim.kill()
        trajectories = await asyncio.gather(*rollouts)
        assert victim.pid not in psutil.pids()

        groups = [art.TrajectoryGroup(trajectories[at : at + 8]) for at in range(0, 32, 8)]
        records = [record for t in trajectories for record in await records_of(backend, model, t)]
        assert len(records) == len({record.id for record in records}) == 64
        assert {record.status for record in records} <= {
            CompletionStatus.COMPLETED,
            CompletionStatus.TRUNCATED,
        }
        result = await backend.train(model, groups, art.StepConfig(learning_rate=1e-3))
        assert result.metrics["tokens_trained"] == sum(
            len(record.completion_token_ids) for record in records
        )
        assert result.metrics["sampler_gap_max"] < ROUNDING

        # Now from the new adapter, with a grammar.
        rollouts = [play(model, number, constrained=True) for number in range(4)]
        group = art.TrajectoryGroup(await asyncio.gather(*rollouts))
        assert {v for t in group for h in t.histories for v in h.policy_versions if v} == {1}
        result = await backend.train(model, [group], art.StepConfig())
        assert result.step == 2
        assert result.metrics["sampler_gap_max"] < ROUNDING


def metric(server: psutil.Process, name: str) -> float:
    """One of the numbers that a vLLM server tells of itself."""
    line = server.cmdline()
    text = httpx.get(f"http://127.0.0.1:{line[line.index('--port') + 1]}/metrics").text
    (found,) = [each for each in text.splitlines() if each.startswith(f"vllm:{name}{{")]
    return float(found.split()[-1])


def is_api_server(process: psutil.Process) -> bool:
    line = process.cmdline()
    return "vllm.entrypoints.openai.api_server" in line and not any("guard" in a for a in line)


async def play(
    model: art.TrainableModel[None], number: int, *, constrained: bool = False
) -> art.Trajectory:
    form: dict[str, Any] = {}
    if constrained:
        schema = {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 8}},
            "required": ["city"],
            "additionalProperties": False,
        }
        form = {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": schema},
            }
        }
    async with (
        model.rollout() as trajectory,
        openai.AsyncOpenAI(
            base_url=trajectory.base_url, api_key=trajectory.api_key, max_retries=0, timeout=300
        ) as client,
    ):
        messages: list[Any] = [{"role": "user", "content": f"Say something about {number}."}]
        for _ in range(2):
            done = await client.chat.completions.create(
                model="bot", messages=messages, max_tokens=24, **form
            )
            content = done.choices[0].message.content
            if constrained and done.choices[0].finish_reason == "stop":
                assert set(json.loads(content or "")) == {"city"}
            messages += [
                {"role": "assistant", "content": content},
                {"role": "user", "content": "And more?"},
            ]
    trajectory.reward = number % 3
    return trajectory


async def records_of(
    backend: art.LocalBackend, model: art.TrainableModel[None], trajectory: art.Trajectory
) -> list[art.Completion]:
    ids = [i for history in trajectory.histories for i in history.completion_ids]
    return await backend.completions(model, ids)


def test_a_server_with_other_logprobs_is_refused(
    weights: BaseWeights, vllm_python: Path, tmp_path: Path
) -> None:
    with pytest.raises(EngineStartError, match=r"temperature.*--logprobs-mode processed_logprobs"):
        start(weights, tmp_path, vllm_python, arguments=("--logprobs-mode", "raw_logprobs"))


BAD_STARTS: list[tuple[dict[str, Any], str]] = [
    ({"context_length": 1_000_000}, "Lower context_length"),
    ({"cpu_kv_gigabytes": 100_000}, "too little memory.*cpu_kv_gigabytes"),
    ({"arguments": ("--frobnicate",)}, "doesn't know an argument"),
]


@pytest.mark.parametrize(("options", "message"), BAD_STARTS)
def test_a_start_that_fails_is_explained(
    weights: BaseWeights, vllm_python: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineStartError, match=message):
        start(weights, tmp_path, vllm_python, **options)


def test_an_architecture_that_vllm_does_not_know(
    weights: BaseWeights, vllm_python: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "odd"
    shutil.copytree(weights.files.path, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["OddForCausalLM"], "model_type": "odd"}
    (folder / "config.json").write_text(json.dumps(config))
    odd = BaseWeights(resolve(str(folder)), weights.tokenizer, weights.new_model())
    with pytest.raises(EngineStartError, match="can't serve the base model's architecture"):
        start(odd, tmp_path, vllm_python)
