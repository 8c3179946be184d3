"""What ``art sft`` does and shows."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import AutoConfig, AutoTokenizer

from art_core.backends.local import LocalBackend
from art_core.chat import chat_format_for
from art_core.cli.run_view import print_json
from art_core.config import SftConfig
from art_core.rollouts import TrainableModel
from art_core.rollouts.signals import stop_on_sigterm
from art_core.sft.examples import Prepares, check_no_leak, prepare
from art_core.weights import BaseModelFiles


def check_examples(
    files: BaseModelFiles, examples: Path, validation: Path | None, config: SftConfig
) -> None:
    """Read both files with the base model's tokenizer alone, and print what is in them.

    Raises:
        ExampleError: see `prepare` and `check_no_leak`.
    """
    chat = chat_format_for(AutoTokenizer.from_pretrained(files.path, local_files_only=True))
    described: Any = AutoConfig.from_pretrained(files.path, local_files_only=True)
    length = int(described.max_position_embeddings)

    def read(side: str, path: Path) -> Prepares:
        prepares = prepare(path, chat, config, context_length=length)
        console = Console(stderr=True)
        for line in prepares.lines():
            console.print(f"{side}: {line}", highlight=False, soft_wrap=True, markup=False)
        return prepares

    training = read("training", examples)
    if validation is not None:
        check_no_leak(training.examples, read("validation", validation).examples)


async def learn_from(
    model: TrainableModel[Any],
    root: Path,
    examples: Path,
    validation: Path | None,
    config: SftConfig,
    *,
    as_json: bool,
) -> None:
    """Train, and print where the result is."""
    async with LocalBackend(root) as backend:
        with stop_on_sigterm():
            await model.register(backend)
            result = await backend.train_sft(model, examples, config, validation=validation)
        checkpoint = backend.run_directory(model).checkpoints.get(result.step).path
    if as_json:
        print_json({"step": result.step, "checkpoint": str(checkpoint), **result.metrics})
        return
    console = Console()
    figures = result.metrics
    console.print(
        f"loss {figures['sft/first_loss']:.4f} → {figures['sft/last_loss']:.4f}", highlight=False
    )
    if "sft/validation_loss" in figures:
        before, after = figures["sft/validation_loss_before"], figures["sft/validation_loss"]
        console.print(f"validation loss {before:.4f} → {after:.4f}", highlight=False)
    console.print(f"checkpoint: {checkpoint}", highlight=False, soft_wrap=True)
