"""How many tokens one pass may have on this machine."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import torch
from torch import Tensor, nn

_SHARE = 0.5
"""Of the free memory that activations may take; the rest is for what a pass needs besides."""
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes(device: torch.device) -> int:
    """Memory that a pass could still take."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return min(psutil.virtual_memory().available, _container_bytes())


def _container_bytes() -> int:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except OSError:
        return sys.maxsize  # not in a container with a limit
    return sys.maxsize if limit == "max" else int(limit) - used


def saved_bytes(model: nn.Module, forward: Callable[[], Tensor]) -> int:
    """Bytes that ``forward`` keeps for its backward pass, the model's weights apart."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    storages: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = forward()
    del result  # kept until here, so that no storage is freed and its address used again
    return sum(size for address, size in storages.items() if address not in weights)


def tokens_that_fit(device: torch.device, bytes_per_token: float) -> int:
    """A power of two, so that a little more or less free memory doesn't change the sums."""
    tokens = int(available_bytes(device) * _SHARE / bytes_per_token)
    return 1 << max(tokens, 256).bit_length() - 1


def enough_tokens(device: torch.device) -> int:
    """Tokens from which on more in one pass makes the device no faster."""
    return 16384 if device.type == "cuda" else 1024
