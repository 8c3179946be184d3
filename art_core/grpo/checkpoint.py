"""The trainer's own files in a checkpoint: optimizer and counters, beside the adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from art_core.errors import RunDamagedError
from art_core.grpo.optimizer import Optimizer

OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "trainer.json"


def save(folder: Path, optimizer: Optimizer, *, step: int, seed: int) -> None:
    """Write `OPTIMIZER_FILE` and `STATE_FILE`."""
    save_file(optimizer.tensors(), folder / OPTIMIZER_FILE)
    # Random numbers (dropout) are drawn from seed and step, so these are the whole state.
    state = {"step": step, "updates": optimizer.updates, "seed": seed}
    (folder / STATE_FILE).write_text(json.dumps(state, indent=2) + "\n")


def load(folder: Path, optimizer: Optimizer) -> tuple[int, int]:
    """Restore the optimizer; returns step and seed.

    Raises:
        RunDamagedError: a file is missing or isn't what `save` wrote.
    """
    try:
        state: dict[str, Any] = json.loads((folder / STATE_FILE).read_text())
        step, updates, seed = (int(state[name]) for name in ("step", "updates", "seed"))
        tensors = load_file(folder / OPTIMIZER_FILE)
    except (OSError, ValueError, KeyError) as error:
        raise RunDamagedError(
            f"{folder} isn't a whole checkpoint: {error}", "Resume from an earlier one."
        ) from error
    optimizer.restore(tensors, updates)
    return step, seed
