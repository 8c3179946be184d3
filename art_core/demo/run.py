"""Runs the demo: measure the base model, train it, measure it again."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from art_core.config import LoraConfig, TrainConfig
from art_core.demo.agent import find_function, search
from art_core.demo.corpus import load_corpus
from art_core.demo.grading import grade, reciprocal_rank
from art_core.demo.report import DemoReport, Score, read_report
from art_core.demo.scenarios import Scenario, Scenarios, make_scenarios
from art_core.rollouts import StepReport, TrainableModel, train
from art_core.trajectories import Trajectory
from art_core.weights import resolve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PROJECT = "demo"
BASE_MODEL = "smollm2-135m"
DEFAULT_STEPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What can be chosen about the demo."""

    root: Path
    package: str | None = None
    """An installed package to search the documentation of; None: the standard library."""
    seed: int = 0
    steps: int = DEFAULT_STEPS
    held_out: int = 64
    """Most questions to measure by."""
    base_model: str = BASE_MODEL
    fresh: bool = False
    """Start anew, instead of going on with the run of the same package and seed."""

    @property
    def run_name(self) -> str:
        corpus = self.package.replace(".", "-") if self.package is not None else "python"
        return f"{corpus}-seed{self.seed}"

    def train_config(self) -> TrainConfig:
        return TrainConfig(
            steps=self.steps,
            groups_per_step=8,
            rollouts_per_group=8,
            learning_rate=1.5e-3,
            max_tokens_per_pass=1024,
            seed=self.seed,
            eval_every=self.steps,
            keep_checkpoints=1,
        )


async def run_demo(
    settings: DemoSettings, *, fetch: Callable[[str], object] = resolve
) -> DemoReport:
    """Train the demo's agent, or go on with its run, and report on it.

    ``fetch`` gets the base model onto this machine, given its name.

    Raises:
        ConfigError: the package can't be used.
        MissingExtraError: the extra ``train`` isn't installed.
        WeightsError: the base model can't be had.
        RunLockedError: the same demo is running already.
    """
    from art_core.backends.local import LocalBackend

    clock = _Clock()
    corpus = load_corpus(settings.package)
    index = settings.root / PROJECT / ".corpora" / f"{settings.run_name}.sqlite"
    corpus.write_index(index)
    scenarios = make_scenarios(corpus, held_out=settings.held_out)
    clock.lap("corpus")
    fetch(settings.base_model)
    clock.lap("base model")
    model = TrainableModel(
        name=settings.run_name,
        project=PROJECT,
        base_model=settings.base_model,
        lora=LoraConfig(rank=8, alpha=16.0),
    )
    async with LocalBackend(settings.root, fresh=settings.fresh) as backend:
        await model.register(backend)
        clock.lap("loading")
        report = await train(
            model,
            player(model, index),
            scenarios.training,
            settings.train_config(),
            validation=scenarios.held_out,
            on_step=clock.step,
        )
        clock.lap("evaluation")
    return read_report(
        report.run_path,
        corpus=corpus,
        scenarios=scenarios,
        copying=copying_score(scenarios, index),
        seconds=clock.laps,
    )


def player(model: TrainableModel, index: Path) -> Callable[[Scenario], Awaitable[Trajectory]]:
    """Plays a question with the agent and grades what it found.

    The agent gets an ordinary client, pointed at the rollout's URL: all that it shares
    with the training is that address.
    """

    async def play(scenario: Scenario) -> Trajectory:
        async with model.rollout(scenario) as trajectory:
            client = model.openai_client().with_options(
                base_url=trajectory.base_url, api_key=trajectory.api_key
            )
            finding = await find_function(client, index, scenario.question)
        marks = grade(finding, scenario)
        trajectory.reward = marks.reward
        trajectory.metrics = asdict(marks)
        return trajectory

    return play


def copying_score(scenarios: Scenarios, index: Path) -> Score:
    """What searching with the question's own words, and answering the first hit, would score."""
    found = [(search(index, s.question), s.function) for s in scenarios.held_out]
    return Score(
        retrieval=sum(reciprocal_rank(pages, wanted) for pages, wanted in found) / len(found),
        correct=sum(pages[:1] == [wanted] for pages, wanted in found) / len(found),
    )


class _Clock:
    """Wall time by phase, of this start."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.laps: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        """All the time since the last lap that belongs to no other phase."""
        now = time.monotonic()
        self.laps[phase] = now - self._last
        self._last = now

    def step(self, step: StepReport) -> None:
        for phase, metric in (("rollouts", "seconds_gathering"), ("training", "seconds_training")):
            seconds = step.metrics[metric]
            self.laps[phase] = self.laps.get(phase, 0.0) + seconds
            self._last += seconds
