"""Compare models: held-out reward, cost, latency and tokens in one table."""

from __future__ import annotations

from typing import Annotated

import typer

from art_core.cli.options import DEFAULT_ROOT, Json, Root


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(help="RUN or RUN@STEP: model, project/model, a run id, or a directory."),
    ],
    root: Root = DEFAULT_ROOT,
    json: Json = False,
) -> None:
    """Compare models on the held-out scenarios that all of them were evaluated on.

    Without @STEP it is the newest evaluation. 'art.train(validation=...)' and
    'art.evaluate' make them.
    """
    from art_core.cli.compare_view import print_comparison

    print_comparison(root, runs, as_json=json)
