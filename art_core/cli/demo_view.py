"""Prints what the demo did."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from art_core.cli.transcript import print_message
from art_core.demo.report import DemoReport, Transcript


def print_demo(report: DemoReport) -> None:
    """Transcripts, scores, times, and where the run is."""
    console = Console()
    for transcript in report.transcripts:
        _print_transcript(console, transcript)
    console.print()
    console.print(_score_table(report))
    console.print(
        f"\n{report.held_out_questions} held-out questions about {report.pages} pages of "
        f"documentation ({escape(report.corpus)}); {report.steps} steps on "
        f"{report.training_questions} others at most. No example of a good query was ever given.",
        highlight=False,
    )
    console.print(_time_line(report), highlight=False)
    console.print(
        f"engine {report.engine_tokens_per_second:.0f} sampled tokens/s, "
        f"trainer {report.trainer_tokens_per_second:.0f} tokens/s, "
        f"peak memory {report.peak_memory_bytes / 2**30:.1f} GiB",
        highlight=False,
    )
    console.print(f"run    {report.run_path}\ncurve  {report.plot_path}", soft_wrap=True)


def _print_transcript(console: Console, transcript: Transcript) -> None:
    console.print()
    console.rule(f"the answer is {transcript.function}", align="left")
    question = transcript.before[0]
    print_message(console, question)
    for title, messages in (("before", transcript.before), ("after", transcript.after)):
        console.print(f"[bold]{title}[/]")
        for message in messages[1:]:
            print_message(console, message)


def _score_table(report: DemoReport) -> Table:
    table = Table(header_style="bold", box=None)
    table.add_column("held out")
    for heading in ("base model", "trained", "copying the question"):
        table.add_column(heading, justify="right")
    scores = (report.base, report.trained, report.copying)
    table.add_row("retrieval (MRR)", *(f"{score.retrieval:.3f}" for score in scores))
    table.add_row("answers right", *(f"{score.correct:.0%}" for score in scores))
    return table


def _time_line(report: DemoReport) -> str:
    phases = ", ".join(f"{phase} {seconds:.0f} s" for phase, seconds in report.seconds.items())
    return f"took {sum(report.seconds.values()):.0f} s: {phases}"
