"""List, show, check and fork runs; say what a running one waits for."""

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


Run = Annotated[str, typer.Argument(help="model, project/model, a run id, or a directory")]


@app.command()
def show(
    run: Run,
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


@app.command()
def verify(run: Run, root: Root = DEFAULT_ROOT, json: Json = False) -> None:
    """Check every file of a run; exits with 1 if one is damaged."""
    from art_core.cli.runs_verify import print_verification

    if not print_verification(root, run, as_json=json):
        raise typer.Exit(1)


@app.command()
def fork(
    source: Annotated[str, typer.Option("--from", help="RUN@STEP; the latest step without @.")],
    name: Annotated[str, typer.Option(help="The new run's model name.")],
    project: Annotated[str | None, typer.Option(help="Its project, if it is another.")] = None,
    root: Root = DEFAULT_ROOT,
    json: Json = False,
) -> None:
    """Begin a new run with a checkpoint of another."""
    from art_core.cli.runs_fork import print_fork

    print_fork(root, source, name=name, project=project, as_json=json)


@app.command()
def why(run: Run, root: Root = DEFAULT_ROOT, json: Json = False) -> None:
    """Say what each rollout of a running run waits for."""
    from art_core.cli.runs_why import print_why

    print_why(root, run, as_json=json)
