"""Write a checkpoint as a PEFT adapter or a merged model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from art_core.cli.options import DEFAULT_ROOT, Root


def export(
    run: Annotated[str, typer.Argument(help="model, project/model, a run id, or a directory")],
    target: Annotated[Path, typer.Argument(help="The folder to make.")],
    step: Annotated[
        int | None, typer.Option(help="Of which step; the latest if not given.")
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="The best by held-out reward instead.")
    ] = False,
    merged: Annotated[
        bool, typer.Option("--merged", help="Merge it into the base model: a whole model.")
    ] = False,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Write a checkpoint as a PEFT adapter (for vLLM, peft) or a merged model (for any)."""
    from rich.console import Console

    from art_core.backends.export import export_adapter, export_merged, find_checkpoint
    from art_core.errors import ConfigError
    from art_core.runs import open_run_readonly

    if best and step is not None:
        raise ConfigError(f"both --best and --step {step} are given", "Give one of them.")
    reader = open_run_readonly(run, root)
    checkpoint = find_checkpoint(reader, step, best=best)
    with Console(stderr=True).status(f"writing step {checkpoint.step}"):
        if merged:
            export_merged(reader, checkpoint, target)
        else:
            export_adapter(checkpoint, target)
    typer.echo(target)
