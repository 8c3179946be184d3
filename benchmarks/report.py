"""How every benchmark shows what it measured."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata

from rich.console import Console
from rich.table import Table

Figure = float | int | Sequence[float] | Sequence[int]

_LIBRARIES = ("torch", "transformers", "peft", "trl")


def report(name: str, figures: Mapping[str, Figure], *, setup: Mapping[str, object]) -> None:
    """Print figures: a table, or with ``--json`` on the command line one JSON object.

    Args:
        figures: what was measured, by key; a list has one entry per seed.
        setup: what it was measured on; machine and library versions are added.
    """
    whole = {**_machine(), **setup}
    if "--json" in sys.argv[1:]:
        print(json.dumps({"benchmark": name, "figures": dict(figures), "setup": whole}))
        return
    table = Table(title=f"benchmarks.{name}", title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for key, value in figures.items():
        table.add_row(key, _text(value))
    console = Console()
    console.print(table)
    console.print(", ".join(f"{key}: {value}" for key, value in whole.items()), style="dim")


def _text(figure: Figure) -> str:
    if isinstance(figure, Sequence):
        return ", ".join(_text(value) for value in figure)
    return str(figure) if isinstance(figure, int) else f"{figure:.4g}"


def _machine() -> dict[str, object]:
    setup: dict[str, object] = {"python": platform.python_version(), "system": platform.platform()}
    for library in _LIBRARIES:
        try:
            setup[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue  # not every benchmark needs all of them
    return setup
