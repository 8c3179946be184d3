# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""A checkpoint as other programs take it: a PEFT adapter, or a whole merged model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from art_core.errors import ConfigError, RunError, RunMismatchError
from art_core.runs import VALIDATION_SPLIT, Checkpoint, RunReader
from art_core.runs.files import make_folder, storage_errors
from art_core.runs.retention import best_step
from art_core.weights import resolve

ADAPTER_FILES = ("adapter_model.safetensors", "adapter_config.json")


def find_checkpoint(run: RunReader, step: int | None, *, best: bool) -> Checkpoint:
    """A verified checkpoint of a run: of a step, the best by held-out reward, or the latest.

    Raises:
        RunError: there is none.
        RunDamagedError: it isn't what its manifest says.
    """
    if best:
        steps = [checkpoint.step for checkpoint in run.checkpoints.all()]
        step = best_step(f"{VALIDATION_SPLIT}/reward", run.metrics.read(), steps)
        if step is None:
            raise RunError(
                f"no checkpoint of {run.path} has a held-out reward", "Name one with --step."
            )
    checkpoint = run.checkpoints.latest() if step is None else run.checkpoints.get(step)
    if checkpoint is None:
        raise RunError(f"{run.path} has no checkpoint", "Train at least one step.")
    checkpoint.verify()
    return checkpoint


def export_adapter(checkpoint: Checkpoint, target: Path) -> None:
    """Write the LoRA adapter in PEFT's format, for vLLM's ``--lora-modules`` and `peft`.

    Raises:
        ConfigError: ``target`` exists.
        RunError: the checkpoint's weights are not here.
        StorageError: it couldn't be written; nothing is left behind.
    """

    def write(folder: Path) -> None:
        for name in ADAPTER_FILES:
            if not (checkpoint.path / name).exists():
                raise RunError(
                    f"{checkpoint.path} has no {name}",
                    "The weights of a model that a server trains are there: export them there.",
                )
            shutil.copyfile(checkpoint.path / name, folder / name)

    _write_folder(target, write)


def export_merged(run: RunReader, checkpoint: Checkpoint, target: Path) -> None:
    """Write the base model with the adapter merged in, in the base's own dtype.

    What transformers, vLLM, llama.cpp's converter and ``ollama create`` read.

    Raises:
        ConfigError: ``target`` exists.
        RunMismatchError: the base model isn't the one that was trained on.
        WeightsError, StorageError: it can't be loaded, or written.
    """
    base = resolve(run.identity.base_model or "")
    if run.identity.base_digest not in (None, base.digest):
        raise RunMismatchError(
            f"the base model {base.name} has changed since {run.path} was begun",
            "Restore the one that was trained on.",
        )

    def write(folder: Path) -> None:
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model: Any = AutoModelForCausalLM.from_pretrained(
            base.path, dtype="auto", local_files_only=True, trust_remote_code=False
        )
        merged: Any = PeftModel.from_pretrained(model, str(checkpoint.path)).merge_and_unload()
        merged.save_pretrained(folder)
        tokenizer: Any = AutoTokenizer.from_pretrained(base.path, local_files_only=True)
        tokenizer.save_pretrained(folder)

    _write_folder(target, write)


def _write_folder(target: Path, write: Callable[[Path], None]) -> None:
    """Fill a folder that appears by rename, whole or not at all."""
    if target.exists():
        raise ConfigError(f"{target} exists", "Name a folder that doesn't.")
    staging = target.with_name(f".{target.name}.{uuid4().hex[:8]}")
    make_folder(staging)
    try:
        with storage_errors("write", target):
            write(staging)
            staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
