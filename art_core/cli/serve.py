"""Serve and train models over HTTP, for many clients and projects at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from art_core.cli.options import DEFAULT_ROOT, Root


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 7999,
    base_model: Annotated[
        list[str] | None,
        typer.Option(
            help="A base model that clients may train; repeat it. If none is given: smollm2-135m."
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help="embedded or vllm.")] = "embedded",
    engine_url: Annotated[
        str | None, typer.Option(help="A vLLM server that runs already, to be used.")
    ] = None,
    device: Annotated[str, typer.Option(help="A torch device, or auto.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    root: Root = DEFAULT_ROOT,
) -> None:
    """Serve and train models over HTTP, for many clients and projects at once.

    Clients need a key: 'art keys create PROJECT NAME'. SIGTERM and Ctrl-C finish the
    training step that is under way; queued steps are trained after the next start.
    """
    from art_core.cli.serving import run_server

    run_server(
        root=Path(root),
        host=host,
        port=port,
        base_models=base_model or ["smollm2-135m"],
        engine=engine,
        engine_url=engine_url,
        device=device,
        dtype=dtype,
    )
