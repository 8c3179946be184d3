"""Play one group before any training, and say what would go wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from art_core.cli.options import Json


def check(
    agent: Annotated[
        str, typer.Argument(help="module:function, the function that plays a scenario")
    ],
    model: Annotated[str, typer.Option(help="The TrainableModel's name in that module.")] = "model",
    scenarios: Annotated[
        str, typer.Option(help="The scenarios' name in that module, or a .jsonl file.")
    ] = "scenarios",
    solved: Annotated[float, typer.Option(help="The reward that counts as a success.")] = 1.0,
    json: Json = False,
) -> None:
    """Play one group before any training, and say what would go wrong.

    Shows the calls that were captured and those that weren't, tokens, the spread of
    rewards, how often the base model succeeds, and what a training step would take.
    Uses a run directory of its own, which is thrown away.
    """
    import asyncio

    from art_core.cli.check_view import print_check
    from art_core.cli.fetching import fetch
    from art_core.cli.run_view import print_json
    from art_core.cli.targets import load_target, run_check

    target = load_target(agent, model=model, scenarios=scenarios, folder=Path.cwd())
    fetch(target.model.base_model)
    report = asyncio.run(run_check(target, solved=solved))
    if json:
        print_json(report.as_json())
    else:
        print_check(report)
    if not report.ready:
        raise typer.Exit(1)
