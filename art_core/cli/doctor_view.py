"""Prints the diagnosis."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from art_core.cli.diagnosis import diagnose
from art_core.cli.run_view import print_json

_MARKS = {"ok": "[green]✓[/]", "missing": "[yellow]–[/]", "problem": "[red]✗[/]"}


def print_report(*, as_json: bool) -> None:
    """Print every fact, by area, and below what to install or mend."""
    facts = diagnose()
    if as_json:
        print_json({"facts": [asdict(fact) for fact in facts]})
        return
    console = Console()
    table = Table.grid(padding=(0, 2))
    area = None
    for fact in facts:
        heading = f"[bold]{fact.area}[/]" if fact.area != area else ""
        area = fact.area
        table.add_row(heading, _MARKS[fact.state], escape(fact.name), escape(fact.detail))
    console.print(table)
    remedies = [fact for fact in facts if fact.remedy is not None]
    if remedies:
        console.print("\n[bold]For the rest:[/]")
    for fact in remedies:
        console.print(f"  {fact.name}: {escape(fact.remedy or '')}", highlight=False)
