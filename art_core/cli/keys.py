"""Create, list and revoke the API keys of art serve."""

from __future__ import annotations

from typing import Annotated

import typer

from art_core.cli.options import DEFAULT_ROOT, Json, Root

app = typer.Typer(no_args_is_help=True)


@app.command()
def create(
    project: Annotated[str, typer.Argument(help="All that the key can see and use.")],
    name: Annotated[str, typer.Argument(help="Whose key it is, for the list.")],
    requests_per_minute: Annotated[int | None, typer.Option(min=1)] = None,
    rollouts: Annotated[int | None, typer.Option(min=1, help="Open at once.")] = None,
    tokens_per_day: Annotated[
        int | None, typer.Option(min=1, help="Prompt and sampled tokens.")
    ] = None,
    disk_gb: Annotated[float | None, typer.Option(help="All that the project has on disk.")] = None,
    root: Root = DEFAULT_ROOT,
    json: Json = False,
) -> None:
    """Make a key and print it, this once."""
    from art_core.cli.keys_view import create_key
    from art_core.server.keys import Limits

    limits = Limits(
        requests_per_minute=requests_per_minute,
        rollouts=rollouts,
        tokens_per_day=tokens_per_day,
        disk_gb=disk_gb,
    )
    create_key(root, project, name, limits, as_json=json)


@app.command("list")
def list_keys(root: Root = DEFAULT_ROOT, json: Json = False) -> None:
    """List the keys, without what would let anybody use them."""
    from art_core.cli.keys_view import print_keys

    print_keys(root, as_json=json)


@app.command()
def revoke(
    key: Annotated[str, typer.Argument(help="Its id, as 'art keys list' shows it.")],
    root: Root = DEFAULT_ROOT,
) -> None:
    """Refuse a key from its next request on."""
    from art_core.cli.keys_view import revoke_key

    revoke_key(root, key)
