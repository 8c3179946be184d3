"""Asks a running run what it waits for, and prints the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from art_core.cli.run_view import print_json
from art_core.rollouts.waiting import ask
from art_core.runs import open_run_readonly


def print_why(root: Path, name: str, *, as_json: bool) -> None:
    """What a run does, and where each of its rollouts waits.

    Raises:
        RunError: it isn't running on this machine, or doesn't answer.
    """
    answer = ask(open_run_readonly(name, root))
    if as_json:
        print_json(answer)
        return
    console = Console()
    for line in _lines(answer):
        console.print(line, highlight=False, soft_wrap=True)


def _lines(answer: dict[str, Any]) -> list[str]:
    blocked = answer["loop_blocked_seconds"]
    lines = [f"process {answer['pid']}, {len(answer['waiting'])} under way"]
    if blocked > 1:
        lines.append(
            f"[red]the event loop has been blocked for {blocked:.0f} s[/]: no rollout goes on "
            "while a synchronous call runs in it (see MainThread below)"
        )
    for doing in answer["waiting"]:
        lines.append(
            f"[bold]{escape(doing['what'])}[/]  {doing['seconds']:.0f} s  "
            f"waiting at {escape(doing['where'])}"
        )
    for thread, stack in answer["threads"].items():
        lines.append(f"\n[bold]{escape(thread)}[/]\n{escape(stack.rstrip())}")
    return lines
