"""Fetch base models, and list those on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from art_core.cli.options import Json

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_models(json: Json = False) -> None:
    """List the built-in base models, and whether this machine has them."""
    from art_core.cli.model_view import print_models

    print_models(as_json=json)


@app.command()
def pull(
    model: Annotated[
        str, typer.Argument(help="smollm2-135m, a Hugging Face id, or a folder to check")
    ],
) -> None:
    """Fetch a base model, so that a later run starts without a download."""
    from art_core.cli.model_view import pull_model

    pull_model(model)
