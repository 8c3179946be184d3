"""List runs, and show one: its metrics, reward curve and trajectories."""

from __future__ import annotations

from typing import Annotated

import typer

from art_core.cli.options import DEFAULT_ROOT, Json, Root

app = typer.Typer(no_args_is_help=False)


@app.callback(invoke_without_command=True)
def list_all(context: typer.Context, root: Root = DEFAULT_ROOT, json: Json = False) -> None:
    """List the runs under the root."""
    if context.invoked_subcommand is None:
        from art_core.cli.run_view import print_runs

        print_runs(root, as_json=json)


@app.command()
def show(
    run: Annotated[str, typer.Argument(help="model, project/model, a run id, or a directory")],
    rollout: Annotated[
        str | None, typer.Option(help="Show this rollout (the beginning of its id is enough).")
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Show the rollout token by token.")
    ] = False,
    root: Root = DEFAULT_ROOT,
    json: Json = False,
) -> None:
    """Show a run's metrics, its reward curve and one of its trajectories."""
    from art_core.cli.run_view import print_run

    print_run(root, run, rollout=rollout, tokens=tokens, as_json=json)
