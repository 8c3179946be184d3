"""The trainer's own files in a checkpoint: optimizer and counters, beside the weights."""
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from art_core.errors import RunDamagedError
from art_core.grpo.optimizer import Optimizer

OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "trainer.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerState:
    """What a trainer is besides tensors.

    Random numbers (of dropout) are drawn from ``seed`` and ``step``, and the
    learning rate follows from ``updates``, so there is no other state.
    """

    step: int
    updates: int
    seed: int
    tokens_that_fit: int
    """Kept, so that a resumed run cuts its passes, and rounds its sums, as before."""


def save(folder: Path, optimizer: Optimizer, state: TrainerState) -> None:
    """Write `OPTIMIZER_FILE` and `STATE_FILE`."""
    save_file(optimizer.tensors(), folder / OPTIMIZER_FILE)
    text = json.dumps(asdict(state), indent=2) + "\n"
    (folder / STATE_FILE).write_text(text, encoding="utf-8")


def load(folder: Path, optimizer: Optimizer) -> TrainerState:
    """Restore the optimizer; returns the rest.

    Raises:
        RunDamagedError: a file is missing or isn't what `save` wrote.
    """
    try:
        state = TrainerState(**json.loads((folder / STATE_FILE).read_text(encoding="utf-8")))
        tensors = load_file(folder / OPTIMIZER_FILE)
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        raise RunDamagedError(
            f"{folder} isn't a whole checkpoint: {error}", "Resume from an earlier one."
        ) from error
    optimizer.restore(tensors, state.updates)
    return state
