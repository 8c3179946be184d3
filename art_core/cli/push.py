"""Upload an exported checkpoint to a Hugging Face repo or an S3-compatible store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def push(
    folder: Annotated[Path, typer.Argument(help="What art export has written.")],
    target: Annotated[str, typer.Argument(help="hf://owner/repo or s3://bucket/prefix")],
) -> None:
    """Upload an exported checkpoint to a Hugging Face repo or an S3-compatible store."""
    from rich.console import Console

    from art_core.backends.push import push as upload

    with Console(stderr=True).status("uploading") as status:
        where = upload(folder, target, lambda name: status.update(f"uploading {name}"))
    typer.echo(where)
