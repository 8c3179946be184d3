"""Measure a judge before paying for a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def ruler() -> None:
    """Rewards from a judge."""


@app.command()
def check(
    judge: Annotated[
        str, typer.Argument(help="A LiteLLM model string, or with --url the server's model name.")
    ],
    url: Annotated[
        str | None, typer.Option(help="An OpenAI-compatible server, with its /v1.")
    ] = None,
    key_env: Annotated[
        str, typer.Option(help="Environment variable with the key for --url.")
    ] = "OPENAI_API_KEY",
    groups: Annotated[
        list[Path] | None,
        typer.Option(help="JSONL of groups with known rewards; without it those of ruler."),
    ] = None,
    rubric: Annotated[Path | None, typer.Option(help="A text file with the standard.")] = None,
    mode: Annotated[str, typer.Option(help="relative, pairwise or absolute")] = "relative",
    orders: Annotated[int, typer.Option(help="Shuffled orders to judge each group in.")] = 3,
    structured: Annotated[
        str | None, typer.Option(help="How the form is asked for: schema, json or none.")
    ] = None,
    max_usd: Annotated[float | None, typer.Option(help="Stop when this much is spent.")] = None,
    concurrency: Annotated[int, typer.Option(help="Calls at once.")] = 8,
    cache: Annotated[bool, typer.Option(help="Use and keep answers on disk.")] = True,
    min_accuracy: Annotated[
        float | None, typer.Option(help="Exit with 1 below this share of pairs ordered right.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Judge groups whose outcome is known; show accuracy, bias, steadiness and cost."""
    from ruler.checking import CheckOptions, run_check

    accuracy = run_check(
        CheckOptions(
            judge=judge,
            url=url,
            key_env=key_env,
            groups=groups or [],
            rubric=rubric,
            mode=mode,
            orders=orders,
            structured=structured,
            max_usd=max_usd,
            concurrency=concurrency,
            cache=cache,
        ),
        as_json=json,
    )
    if min_accuracy is not None and (accuracy is None or accuracy < min_accuracy):
        raise typer.Exit(1)
