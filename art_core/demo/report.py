"""What the demo did, read from its run directory."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from art_core.demo.corpus import Corpus
from art_core.demo.scenarios import Scenarios
from art_core.runs import TRAIN_SPLIT, VALIDATION_SPLIT, MetricsRow, RunReader
from art_core.trajectories import Message, Trajectory

TRANSCRIPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Means over the held-out questions."""

    retrieval: float
    """Mean reciprocal rank of the right page among the five found."""
    correct: float
    """Share of questions answered rightly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """One held-out question, played by the base model and by the trained one."""

    function: str
    before: list[Message]
    after: list[Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The demo's figures."""

    corpus: str
    pages: int
    training_questions: int
    held_out_questions: int
    copying: Score
    """What searching with the question's own words would score."""
    base: Score
    trained: Score
    steps: int
    rewards: list[float]
    """Mean training reward of each step."""
    seconds: dict[str, float]
    """Wall time of this start by phase."""
    training_seconds: float
    """Rollouts and training of all steps, earlier starts included."""
    engine_tokens_per_second: float
    """Sampled, over the time that rollouts took (searching and HTTP included)."""
    trainer_tokens_per_second: float
    """Distinct tokens computed (forward and backward), over the time of training steps."""
    peak_memory_bytes: int
    run_path: Path
    plot_path: Path
    transcripts: list[Transcript] = field(default_factory=list[Transcript])

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read_report(
    run_path: Path,
    *,
    corpus: Corpus,
    scenarios: Scenarios,
    copying: Score,
    seconds: Mapping[str, float],
) -> DemoReport:
    """Put the report together from a finished run."""
    run = RunReader(run_path)
    rows = run.metrics.read()
    steps = [row.metrics for row in rows if row.split == TRAIN_SPLIT]
    gathering = sum(step["seconds_gathering"] for step in steps)
    training = sum(step["seconds_training"] for step in steps)
    sampled = sum(step["sampled_tokens"] * step["trajectories"] for step in steps)
    computed = sum(step["tokens_computed"] for step in steps)
    return DemoReport(
        corpus=corpus.title,
        pages=len(corpus.pages),
        training_questions=len(scenarios.training),
        held_out_questions=len(scenarios.held_out),
        copying=copying,
        base=_score(rows, 0),
        trained=_score(rows, run.step),
        steps=run.step,
        rewards=[step["reward"] for step in steps],
        seconds=dict(seconds),
        training_seconds=gathering + training,
        engine_tokens_per_second=sampled / gathering,
        trainer_tokens_per_second=computed / training,
        peak_memory_bytes=_peak_memory(),
        run_path=run.path,
        plot_path=run.plot_path,
        transcripts=_transcripts(_held_out(run, 0), _held_out(run, run.step)),
    )


def _score(rows: Sequence[MetricsRow], step: int) -> Score:
    row = next(row for row in rows if row.split == VALIDATION_SPLIT and row.step == step)
    return Score(retrieval=row.metrics["retrieval"], correct=row.metrics["correct"])


def _held_out(run: RunReader, step: int) -> list[Trajectory]:
    groups = run.trajectories.read(VALIDATION_SPLIT, step)
    return [trajectory for group in groups for trajectory in group.trajectories]


def _transcripts(before: list[Trajectory], after: list[Trajectory]) -> list[Transcript]:
    """Questions that the trained model answers and the base model doesn't, or else the first."""
    first = {str(t.metadata["scenario"]): t for t in before}
    pairs = [(first[key], t) for t in after if (key := str(t.metadata["scenario"])) in first]
    pairs.sort(key=lambda pair: not pair[1].metrics["correct"] or bool(pair[0].metrics["correct"]))
    return [
        Transcript(function=_function(new), before=old.messages()[1:], after=new.messages()[1:])
        for old, new in pairs[:TRANSCRIPTS]
    ]


def _function(trajectory: Trajectory) -> str:
    scenario = trajectory.metadata["scenario"]
    return str(scenario["function"]) if isinstance(scenario, dict) else ""


def _peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
