"""Learn from example conversations, and report what was left out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from art_core.cli.options import DEFAULT_ROOT, Json, Root


def sft(
    examples: Annotated[Path, typer.Argument(help="A .jsonl file of conversations.")],
    base_model: Annotated[
        str, typer.Option(help="smollm2-135m, a Hugging Face id, or a folder.")
    ] = "smollm2-135m",
    name: Annotated[str, typer.Option(help="What the trained model is called.")] = "sft",
    project: Annotated[str, typer.Option(help="The project that its run belongs to.")] = "sft",
    validation: Annotated[
        Path | None, typer.Option(help="Another file, to measure the loss on.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="How often each example is seen.")] = 3,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per update.")] = 16,
    learning_rate: Annotated[float, typer.Option(help="At its peak.")] = 2e-4,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of an example [what the model reads].")
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out what can't be learned from.")
    ] = False,
    skip_long: Annotated[
        bool, typer.Option("--skip-long", help="Leave out what is over-long.")
    ] = False,
    rank: Annotated[int, typer.Option(min=1, help="Of the LoRA adapter.")] = 8,
    seed: Annotated[int, typer.Option(help="Of the order of the examples.")] = 0,
    only_check: Annotated[
        bool, typer.Option("--check", help="Read the examples and report; train nothing.")
    ] = False,
    root: Root = DEFAULT_ROOT,
    json: Json = False,
) -> None:
    """Learn from example conversations, and report what was left out.

    Stopped and started again with the same examples and settings, it goes on where it
    was. The result is a run like any other: train on from it by reward.
    """
    import asyncio

    from art_core.cli.fetching import fetch
    from art_core.cli.sft_view import check_examples, learn_from
    from art_core.config import LoraConfig, SftConfig
    from art_core.rollouts import TrainableModel

    config = SftConfig(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        max_length=max_length,
        bad_examples="skip" if skip_bad else "refuse",
        long_examples="skip" if skip_long else "refuse",
        seed=seed,
    )
    files = fetch(base_model)
    check_examples(files, examples, validation, config)
    if only_check:
        return
    model = TrainableModel(
        name=name, project=project, base_model=base_model, lora=LoraConfig(rank=rank)
    )
    asyncio.run(learn_from(model, root, examples, validation, config, as_json=json))
