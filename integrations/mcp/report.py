"""What ``art mcp train`` says at its end: figures and transcripts, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table

from art_core.cli.transcript import print_transcript
from art_core.rollouts import TrainReport
from art_core.runs import VALIDATION_SPLIT, RunReader, write_whole
from art_core.trajectories import Trajectory
from integrations.mcp.training import FOLDER, Trained

_FIGURES = {
    "reward": "reward",
    "used_tools": "rollouts that called a tool",
    "valid_tool_calls": "tool calls that fit a tool",
    "tool_errors": "failed calls in a rollout",
    "truncated": "rollouts cut off",
    "server_deaths": "server deaths in a rollout",
}
_LOSS = "sft/last_loss"
"""Metric of a step that learned from demonstrations."""
_TRANSCRIPTS = 3
_WIDTH = 100

Pair = tuple[Trajectory, Trajectory]
"""The same held-out scenario before training and after."""


def print_report(trained: Trained) -> None:
    """Print the figures and the transcript of what improved most; write ``transcripts.txt``."""
    console, report = Console(), trained.report
    console.print(figures(report))
    if trained.win_rate is not None:
        won = f"won against the untrained model: {trained.win_rate}"
        console.print(won, highlight=False, soft_wrap=True)
    pairs = sample(report)
    path = report.run_path / FOLDER / "transcripts.txt"
    path.parent.mkdir(exist_ok=True)
    write_whole(path, [_written(pairs).encode()])
    if pairs:
        _print_pair(console, pairs[0])
    console.print(f"transcripts: {path}", highlight=False, soft_wrap=True)
    console.print(
        f"plot: {report.plot_path or 'needs matplotlib'}", highlight=False, soft_wrap=True
    )


def figures(report: TrainReport) -> Table:
    """Means over the held-out scenarios."""
    rows = {row.step: row.metrics for row in report.rows if row.split == VALIDATION_SPLIT}
    columns = {"before": 0, "after": report.steps}
    if report.steps > 1 and _warm_started(report):
        columns = {"before": 0, "after demonstrations": 1, "after": report.steps}
    sides = [rows.get(step, {}) for step in columns.values()]
    table = Table("held-out scenarios", *columns, title_justify="left")
    for key, name in _FIGURES.items():
        if any(key in side for side in sides):
            table.add_row(name, *(_number(side.get(key)) for side in sides))
    return table


def _warm_started(report: TrainReport) -> bool:
    return any(_LOSS in row.metrics for row in report.rows if row.step == 1)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def sample(report: TrainReport) -> list[Pair]:
    """The scenario that improved most, the one that got worst, and others between."""
    read = RunReader(report.run_path).trajectories.read
    sides: list[dict[str, Trajectory]] = [
        {
            str(one.metadata.get("scenario")): one
            for group in read(VALIDATION_SPLIT, step)
            for one in group.trajectories
            if one.reward is not None
        }
        for step in (0, report.steps)
    ]
    before, after = sides
    pairs = [(before[key], after[key]) for key in before.keys() & after.keys()]
    pairs.sort(key=lambda pair: (pair[0].reward or 0.0) - (pair[1].reward or 0.0))
    return pairs if len(pairs) <= _TRANSCRIPTS else [pairs[0], pairs[len(pairs) // 2], pairs[-1]]


def _print_pair(console: Console, pair: Pair) -> None:
    for title, trajectory in zip(("before training", "after training"), pair, strict=True):
        console.rule(title, align="left")
        print_transcript(console, trajectory)


def _written(pairs: Sequence[Pair]) -> str:
    text = StringIO()
    console = Console(file=text, width=_WIDTH)
    for pair in pairs:
        _print_pair(console, pair)
    return text.getvalue()
