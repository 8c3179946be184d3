"""What the server is started with, and which GPUs it gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from art_core.backends.choice import EngineChoice
from art_core.engines.vllm import VllmOptions
from art_core.engines.vllm.command import Served, command, environment
from art_core.engines.vllm.gpus import GpuPlan, Memory, plan_gpus
from art_core.errors import ConfigError

GIB = 2**30
ON_CPU = Served(
    model=Path("models/m"),
    dtype="float32",
    lora_rank=12,
    lora_modules=("q_proj", "v_proj"),
    gpu=None,
)
ON_GPU = Served(
    model=Path("models/m"),
    dtype="bfloat16",
    lora_rank=8,
    lora_modules=("q_proj", "v_proj"),
    gpu=GpuPlan(gpus=(1, 2), memory=0.4, sleep=True, reason=""),
)


def value(line: list[str], flag: str) -> str:
    return line[line.index(flag) + 1]


def test_the_command_line() -> None:
    line = command(
        "python", 8123, ON_CPU, VllmOptions(context_length=512, arguments=("--seed", "3"))
    )
    assert line[:3] == ["python", "-m", "vllm.entrypoints.openai.api_server"]
    assert value(line, "--host") == "127.0.0.1"
    assert value(line, "--max-lora-rank") == "16"
    assert value(line, "--max-model-len") == "512"
    assert value(line, "--logprobs-mode") == "processed_logprobs"
    at = line.index("--lora-target-modules")
    assert line[at + 1 : at + 3] == ["q_proj", "v_proj"]
    assert line[-2:] == ["--seed", "3"]
    assert "--enable-sleep-mode" not in line

    line = command("python", 8123, ON_GPU, VllmOptions(max_lora_rank=64))
    assert value(line, "--max-lora-rank") == "64"
    assert value(line, "--gpu-memory-utilization") == "0.4"
    assert value(line, "--tensor-parallel-size") == "2"
    assert "--enable-sleep-mode" in line
    assert "--max-model-len" not in line

    with pytest.raises(ConfigError, match="rank 513"):
        command("python", 1, ON_CPU, VllmOptions(max_lora_rank=513))


def test_the_environment() -> None:
    inherited = {"PATH": "/bin", "PYTHONPATH": "ours", "CUDA_VISIBLE_DEVICES": "4,5,6"}
    on_cpu = environment(ON_CPU, VllmOptions(cpu_kv_gigabytes=3), "key", inherited)
    assert on_cpu["PATH"] == "/bin"
    assert "PYTHONPATH" not in on_cpu
    assert on_cpu["VLLM_API_KEY"] == "key"
    assert on_cpu["VLLM_CPU_KVCACHE_SPACE"] == "3"
    on_gpu = environment(ON_GPU, VllmOptions(environment={"A": "b"}), "key", inherited)
    assert on_gpu["CUDA_VISIBLE_DEVICES"] == "5,6"
    assert on_gpu["VLLM_SERVER_DEV_MODE"] == "1"
    assert on_gpu["A"] == "b"


def memory(*free: int) -> list[Memory]:
    return [Memory(free=gib * GIB, total=80 * GIB) for gib in free]


def test_a_gpu_of_its_own_is_taken_whole() -> None:
    plan = plan_gpus(0, memory(60, 80), VllmOptions())
    assert (plan.gpus, plan.memory, plan.sleep) == ((1,), 0.9, False)


def test_on_the_trainers_gpu_it_sleeps() -> None:
    plan = plan_gpus(0, memory(64), VllmOptions())
    assert (plan.gpus, plan.memory, plan.sleep) == ((0,), 0.68, True)
    assert "80% of it is free" in plan.reason


def test_or_takes_less_than_half() -> None:
    plan = plan_gpus(0, memory(64), VllmOptions(sleep=False))
    assert (plan.gpus, plan.memory, plan.sleep) == ((0,), 0.36, False)


def test_what_the_user_says_counts() -> None:
    plan = plan_gpus(0, memory(64, 80, 80), VllmOptions(gpus=(1, 2), gpu_memory=0.5))
    assert (plan.gpus, plan.memory, plan.sleep) == ((1, 2), 0.5, False)
    for wrong in ((3,), (-1,), ()):
        with pytest.raises(ConfigError, match="this machine has 3"):
            plan_gpus(0, memory(64, 80, 80), VllmOptions(gpus=wrong))


def test_parts_of_a_choice_that_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match="url is set and engine is 'embedded'"):
        EngineChoice(url="http://gpu-box:8000")
    with pytest.raises(ConfigError, match="vllm is set and engine is 'embedded'"):
        EngineChoice(vllm=VllmOptions())
    with pytest.raises(ConfigError, match="Only 'embedded' can"):
        EngineChoice(name="vllm", deterministic=True)
    with pytest.raises(ConfigError, match="engine is 'vlm'"):
        EngineChoice(name="vlm")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="python can't be set"):
        EngineChoice(name="vllm", url="http://gpu-box:8000", vllm=VllmOptions(python=Path("p")))
