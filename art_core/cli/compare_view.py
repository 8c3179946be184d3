"""Prints a comparison of models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from art_core.cli.compare_data import Comparison, ModelRow, compare_runs
from art_core.cli.run_view import print_json

_HEADINGS = (
    "model",
    "answered by",
    "rollouts",
    "failed",
    "held-out reward",
    "USD",
    "seconds",
    "tokens in",
    "tokens out",
)


def print_comparison(root: Path, names: Sequence[str], *, as_json: bool) -> None:
    """One line for each model, the best reward first."""
    comparison = compare_runs(root, names)
    if as_json:
        print_json(comparison.as_json())
        return
    console = Console()
    console.print(_table(comparison))
    console.print(
        f"{comparison.scenarios} held-out scenarios that all were evaluated on; reward ± its "
        "standard error over scenarios; USD, seconds and tokens are means per rollout, of its "
        "model calls.",
        highlight=False,
    )
    for run, count in comparison.left_out.items():
        console.print(
            f"[yellow]left out:[/] {count} scenarios of {escape(run)} that another model wasn't "
            "evaluated on",
            highlight=False,
        )


def _table(comparison: Comparison) -> Table:
    table = Table(box=None, header_style="bold")
    for heading in _HEADINGS:
        left = heading in ("model", "answered by")
        table.add_column(heading, justify="left" if left else "right")
    for row in sorted(comparison.rows, key=_best_first):
        table.add_row(*_cells(row))
    return table


def _best_first(row: ModelRow) -> float:
    return float("inf") if row.reward is None else -row.reward


def _cells(row: ModelRow) -> list[str]:
    error = "" if row.reward_error is None else f" ± {row.reward_error:.3f}"
    return [
        escape(row.run),
        escape(f"{row.model or '-'}{' (trained)' if row.trained else ''}"),
        str(row.rollouts),
        str(row.failed),
        "-" if row.reward is None else f"{row.reward:.3f}{error}",
        _number(row.cost_usd, "{:.6f}"),
        _number(row.seconds, "{:.2f}"),
        _number(row.prompt_tokens, "{:.0f}"),
        _number(row.completion_tokens, "{:.0f}"),
    ]


def _number(value: float | None, shape: str) -> str:
    return "-" if value is None else shape.format(value)
