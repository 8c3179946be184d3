"""Train a small model to search documentation, on this machine, in minutes."""

from __future__ import annotations

from typing import Annotated

import typer

from art_core.cli.options import DEFAULT_ROOT, Json, Root
from art_core.demo.run import DEFAULT_STEPS


def demo(
    package: Annotated[
        str | None,
        typer.Option(help="Search this installed package's documentation [standard library]."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the questions' order and the sampling.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = DEFAULT_STEPS,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start anew instead of going on with this demo's run.")
    ] = False,
    root: Root = DEFAULT_ROOT,
    json: Json = False,
) -> None:
    """Train a small model to search documentation, on this machine, in minutes.

    Measures the base model on held-out questions, trains it by reward alone, and
    measures it again. Stopped and started again, it goes on where it was.
    """
    import asyncio

    from art_core.cli.demo_view import print_demo
    from art_core.cli.fetching import fetch
    from art_core.cli.run_view import print_json
    from art_core.demo.run import DemoSettings, run_demo

    settings = DemoSettings(root=root, package=package, seed=seed, steps=steps, fresh=fresh)
    report = asyncio.run(run_demo(settings, fetch=fetch))
    if json:
        print_json(report.as_json())
    else:
        print_demo(report)
