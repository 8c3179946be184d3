"""Which GPUs the server gets, and how much of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from art_core.engines.vllm.options import VllmOptions
from art_core.errors import ConfigError

OWN_SHARE = 0.9
"""Of a GPU that the trainer doesn't use; vLLM's own default."""
ASLEEP_SHARE = 0.85
"""Of what is free of a shared GPU, where the server lets go of it during training."""
SIDE_BY_SIDE_SHARE = 0.45
"""… where it doesn't: the rest is for the training step's activations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Of one GPU, in bytes, with the trainer's base weights loaded."""

    free: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlan:
    """What the server is started with."""

    gpus: tuple[int, ...]
    memory: float
    """``--gpu-memory-utilization``: a share of each GPU's whole memory."""
    sleep: bool
    reason: str
    """For the log: why it is so."""


def plan_gpus(trainer: int, memory: Sequence[Memory], options: VllmOptions) -> GpuPlan:
    """Split the GPUs between the trainer, on number ``trainer``, and the server.

    On a GPU of its own the server takes 90 %. On the trainer's it takes 85 % of what the
    base weights leave free and sleeps during training steps, or 45 % if it mustn't sleep.

    Raises:
        ConfigError: a GPU is named that isn't there.
    """
    others = tuple(number for number in range(len(memory)) if number != trainer)
    gpus = options.gpus if options.gpus is not None else others[-1:] or (trainer,)
    missing = [number for number in gpus if number >= len(memory) or number < 0]
    if missing or not gpus:
        raise ConfigError(
            f"gpus is {gpus}, and this machine has {len(memory)}", "They are numbered from 0."
        )
    shared = trainer in gpus
    sleep = shared if options.sleep is None else options.sleep
    if not shared:
        share, reason = OWN_SHARE, f"GPU {_names(gpus)} is the server's alone"
    else:
        part = ASLEEP_SHARE if sleep else SIDE_BY_SIDE_SHARE
        free = min(memory[number].free / memory[number].total for number in gpus)
        share = part * free
        how = "it sleeps during training steps" if sleep else "they compute side by side"
        reason = (
            f"GPU {_names(gpus)} is the trainer's too, {free:.0%} of it is free: the server "
            f"takes {part:.0%} of that, and {how}"
        )
    if options.gpu_memory is not None:
        share, reason = options.gpu_memory, "gpu_memory says so"
    return GpuPlan(gpus=gpus, memory=round(share, 3), sleep=sleep, reason=reason)


def _names(gpus: Sequence[int]) -> str:
    return ", ".join(map(str, gpus))
