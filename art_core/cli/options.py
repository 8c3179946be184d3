"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from art_core.runs.reader import DEFAULT_ROOT

Root = Annotated[
    Path,
    typer.Option("--root", envvar="ART_ROOT", help="Where runs are kept.", show_default=".art"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

__all__ = ["DEFAULT_ROOT", "Json", "Root"]
