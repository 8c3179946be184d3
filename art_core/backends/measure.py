"""What a training step takes on this machine: tried, and thrown away."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import torch

from art_core.backends.base import Base
from art_core.config import LoraConfig, StepConfig
from art_core.grpo import GRPOTrainer
from art_core.rollouts.preflight_report import StepCost
from art_core.trajectories import TrajectoryGroup

_POLL_SECONDS = 0.02


def measure_step(
    base: Base, lora: LoraConfig, group: TrajectoryGroup, config: StepConfig
) -> StepCost:
    """Do a step's work on one group with a new trainer over the same weights."""
    trainer = GRPOTrainer(base.weights.new_model(), lora=lora)
    device = base.weights.device
    with _peak_of(device) as peak:
        started = time.monotonic()
        metrics = trainer.step([group], config)
        seconds = time.monotonic() - started
    return StepCost(seconds=seconds, peak_bytes=peak.bytes, tokens=metrics.tokens_computed)


@dataclass(slots=True)
class _Peak:
    bytes: int = 0
    """Above what was taken when it began."""


@contextmanager
def _peak_of(device: torch.device) -> Generator[_Peak]:
    peak = _Peak()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated(device) - before
        return
    process = psutil.Process()
    before = process.memory_info().rss
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_POLL_SECONDS):
            peak.bytes = max(peak.bytes, process.memory_info().rss - before)

    watcher = threading.Thread(target=watch, name="art-peak-memory", daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()
