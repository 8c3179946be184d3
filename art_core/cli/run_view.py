"""Prints runs: as a list, and one of them with its curve and a trajectory."""

from __future__ import annotations

import itertools
import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from art_core.cli.curve import draw_curve
from art_core.cli.run_data import find_trajectory, rewards, rows_as_json, summarize
from art_core.cli.transcript import print_tokens, print_transcript
from art_core.runs import (
    TRAIN_SPLIT,
    VALIDATION_SPLIT,
    MetricsRow,
    RunReader,
    list_runs,
    open_run_readonly,
    own_metrics,
)

_ROWS_SHOWN = 20
_OWN_SHOWN = 4
_NUMBER_WIDTH = 6


def print_runs(root: Path, *, as_json: bool) -> None:
    """The runs under ``root``, and what couldn't be read."""
    listing = list_runs(root)
    summaries = [summarize(run) for run in listing.runs]
    damaged = [str(error) for error in listing.damaged]
    console = Console()
    if as_json:
        print_json({"runs": summaries, "damaged": damaged})
        return
    if not summaries and not damaged:
        console.print(f"No runs under {root}. 'art demo' makes one.", highlight=False)
        return
    if summaries:
        console.print(_runs_table(summaries))
    for problem in damaged:
        console.print(f"[yellow]unreadable:[/] {escape(problem)}", highlight=False)


def print_run(root: Path, name: str, *, rollout: str | None, tokens: bool, as_json: bool) -> None:
    """One run; with ``rollout`` or ``tokens``, only that trajectory."""
    run = open_run_readonly(name, root)
    found = find_trajectory(run, rollout)
    if as_json:
        print_json(_run_as_json(run, found[2].model_dump(mode="json") if found else None))
        return
    console = Console()
    if rollout is None and not tokens:
        _print_overview(console, run)
    if found is None:
        console.print("No trajectories yet.")
        return
    split, step, trajectory = found
    console.rule(f"{split}, step {step}, rollout {trajectory.rollout_id}", align="left")
    if tokens:
        print_tokens(console, trajectory, run.identity.base_model)
    else:
        print_transcript(console, trajectory)


def print_json(value: object) -> None:
    """To standard output, readable by other programs: no colours, no NaN."""
    print(json.dumps(value, indent=2, allow_nan=False, default=str))  # noqa: T201


def _run_as_json(run: RunReader, trajectory: dict[str, Any] | None) -> dict[str, Any]:
    ids = {
        f"{split}/{step}": [
            trajectory.rollout_id
            for group in run.trajectories.read(split, step)
            for trajectory in group.trajectories
        ]
        for split in run.trajectories.splits()
        for step in run.trajectories.steps(split)
    }
    return {
        **summarize(run),
        "identity": run.identity.model_dump(mode="json"),
        "metrics": rows_as_json(run.metrics.read()),
        "rollouts": ids,
        "trajectory": trajectory,
    }


def _runs_table(summaries: list[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold")
    for heading in ("run", "base model", "step", "training reward", "held-out reward", "begun"):
        table.add_column(heading, justify="right" if heading == "step" else "left")
    for run in summaries:
        step = f"{run['step']}{' (running)' if run['active'] else ''}"
        table.add_row(
            escape(f"{run['project']}/{run['model']}"),
            escape(run["base_model"] or "-"),
            step,
            _from_to(run["training_reward"]),
            _from_to(run["held_out_reward"]),
            datetime.fromisoformat(run["created_at"]).astimezone().strftime("%Y-%m-%d %H:%M"),
        )
    return table


def _from_to(reward: dict[str, float] | None) -> str:
    return "-" if reward is None else f"{reward['first']:.3f} → {reward['last']:.3f}"


def _print_overview(console: Console, run: RunReader) -> None:
    identity = run.identity
    state = "running" if run.active else "not running"
    console.print(f"[bold]{escape(identity.project)}/{escape(identity.model)}[/]", highlight=False)
    console.print(
        f"run {identity.run_id}, {state}, {run.step} steps of {identity.base_model}\n{run.path}",
        highlight=False,
        soft_wrap=True,
    )
    rows = run.metrics.read()
    if rows:
        console.print(_metrics_table(rows, console.width))
    console.print(
        draw_curve(
            rewards(rows, TRAIN_SPLIT),
            rewards(rows, VALIDATION_SPLIT),
            width=min(60, console.width - 12),
        )
    )


def _metrics_table(rows: list[MetricsRow], width: int) -> Table:
    shown = rows[-_ROWS_SHOWN:]
    names = _columns(shown, width - len(" step  split "))
    title = f"the last {len(shown)} of {len(rows)} rows" if len(shown) < len(rows) else None
    table = Table(box=None, header_style="bold", title=title, title_justify="left")
    for heading in ("step", "split", *names):
        table.add_column(heading, justify="left" if heading == "split" else "right")
    for row in shown:
        values = [_number(row.metrics.get(name)) for name in names]
        table.add_row(str(row.step), row.split, *values)
    return table


_REST = ("reward_spread", "loss", "entropy", "kl", "grad_norm", "sampled_tokens")


def _columns(rows: list[MetricsRow], width: int) -> list[str]:
    """The reward, the agent's own metrics, then the usual ones, as many as fit.

    ``--json`` has all.
    """
    present = {name for row in rows for name in row.metrics}
    own: dict[str, None] = {}
    for row in rows:
        if row.split != TRAIN_SPLIT:  # training rows have the trainer's metrics, too
            own |= dict.fromkeys(own_metrics(row.metrics))
    wanted = ["reward", *list(own)[:_OWN_SHOWN], *_REST]
    wanted = [name for name in dict.fromkeys(wanted) if name in present]
    ends = itertools.accumulate(max(len(name), _NUMBER_WIDTH) + 2 for name in wanted)
    return [name for name, end in zip(wanted, ends, strict=True) if end <= width]


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
