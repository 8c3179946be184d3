"""Prints what a check found."""

from __future__ import annotations

import json
from collections import Counter

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from art_core.rollouts import CheckReport
from art_core.rollouts.preflight_report import RolloutCheck


def print_check(report: CheckReport) -> None:
    """The rollouts, the rewards, what a step takes, and what to change."""
    console = Console()
    console.print(f"one group of the scenario {escape(_short(report.scenario))}", highlight=False)
    console.print(_rollout_table(report))
    console.print(f"\nattribution  {_attribution(report)}", highlight=False)
    console.print(f"rewards      {_rewards(report)}", highlight=False)
    console.print(f"a step       {_step(report)}", highlight=False)
    if report.ready:
        console.print("\n[green]ready to train[/]")
    for line in report.advice:
        console.print(f"\n[yellow]•[/] {escape(line)}", highlight=False)


def _rollout_table(report: CheckReport) -> Table:
    table = Table(box=None, header_style="bold")
    for heading in ("rollout", "calls", "histories", "tokens", "sampled", "reward"):
        table.add_column(heading, justify="left" if heading == "rollout" else "right")
    for rollout in report.rollouts:
        reward = "failed" if rollout.error is not None else _number(rollout.reward)
        table.add_row(
            ", ".join(rollout.rollout_ids) or "none opened",
            _calls(rollout),
            str(rollout.histories),
            str(rollout.tokens),
            str(sum(call.sampled_tokens for call in rollout.calls)),
            reward,
        )
    return table


def _calls(rollout: RolloutCheck) -> str:
    kinds = Counter(call.status for call in rollout.calls)
    return ", ".join(f"{count} {status}" for status, count in kinds.items()) or "none"


def _attribution(report: CheckReport) -> str:
    calls = sum(len(rollout.calls) for rollout in report.rollouts)
    redirected = sum(rollout.redirected for rollout in report.rollouts)
    passed = sum(sum(rollout.passed.values()) for rollout in report.rollouts)
    return (
        f"{calls} calls recorded: {redirected} redirected from the agent's own host, "
        f"{calls - redirected} by URL or key; {passed} went elsewhere and weren't recorded"
    )


def _rewards(report: CheckReport) -> str:
    if not report.rewards:
        return "none"
    mean = sum(report.rewards) / len(report.rewards)
    passes = ", ".join(f"pass@{k} {value:.0%}" for k, value in report.pass_at_k.items())
    return f"mean {mean:.3g}, spread {report.spread:.3g}; {passes} (success: {report.solved:g})"


def _step(report: CheckReport) -> str:
    played = f"playing the group took {report.seconds:.1f} s"
    cost, total = report.step_cost, report.step_seconds
    if cost is None or total is None:
        return f"{played}; a training step couldn't be measured"
    return (
        f"{played}, training on it {cost.seconds:.1f} s ({cost.tokens} tokens, "
        f"{cost.peak_bytes / 2**30:.2f} GiB more memory): about {total:.0f} s for a step of "
        f"{report.groups_per_step} groups, or less"
    )


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else text[:99] + "…"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"
