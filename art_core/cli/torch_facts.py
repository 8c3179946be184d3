# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""What torch finds on this machine, and which number format is used on it and why."""

from __future__ import annotations

import torch

from art_core.weights.loading import pick_device, pick_dtype


def torch_devices() -> list[tuple[str, str]]:
    """Name and description of each device; the one that is used by default says so."""
    default = pick_device()
    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices += [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        devices.append(torch.device("mps"))
    return [(str(device), _describe(device, default)) for device in devices]


def _describe(device: torch.device, default: torch.device) -> str:
    name = str(pick_dtype(device)).removeprefix("torch.")
    used = "used by default, " if device.type == default.type else ""
    return f"{used}torch {torch.__version__}, {_hardware(device)}; {name}: {_reason(device, name)}"


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    if device.type == "mps":
        return "Apple GPU"
    return f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"


def _reason(device: torch.device, dtype: str) -> str:
    if dtype == "bfloat16":
        return "the hardware multiplies it, in half the memory"
    if device.type == "cpu":
        return "this CPU has no bfloat16 units and would emulate it, several times slower"
    return "no native bfloat16"
