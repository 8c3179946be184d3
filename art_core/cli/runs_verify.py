"""Prints whether a run is whole."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from art_core.cli.run_view import print_json
from art_core.runs import open_run_readonly, verify_run


def print_verification(root: Path, name: str, *, as_json: bool) -> bool:
    """A line for each part of a run, as it is checked; returns whether all are whole."""
    run = open_run_readonly(name, root)
    findings = verify_run(run)
    if as_json:
        found = list(findings)
        whole = not any(finding.problem for finding in found)
        print_json({"path": str(run.path), "whole": whole, "parts": [asdict(f) for f in found]})
        return whole
    console = Console()
    damaged = checked = 0
    for finding in findings:
        checked += 1
        damaged += finding.problem is not None
        mark = "[red]✗[/]" if finding.problem else "[green]✓[/]"
        console.print(f"{mark} {escape(finding.part)}", highlight=False)
        if finding.problem:
            console.print(f"  {escape(finding.problem)}", highlight=False, soft_wrap=True)
    console.print(f"{damaged} of {checked} parts of {escape(str(run.path))} are damaged")
    return damaged == 0
