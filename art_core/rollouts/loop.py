"""`train`: the training loop."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from art_core.config import TrainConfig
from art_core.errors import ConfigError, MissingExtraError, StorageError, TrainingError
from art_core.rollouts.backend import LearnsFromExamples
from art_core.rollouts.display import LoopDisplay
from art_core.rollouts.gathering import LoopGatherer
from art_core.rollouts.model import TrainableModel
from art_core.rollouts.playable import Playable, player
from art_core.rollouts.report import StepReport, TrainReport
from art_core.rollouts.scenarios import check_scenarios
from art_core.rollouts.scoring import Scorer
from art_core.rollouts.signals import stop_on_sigterm
from art_core.rollouts.waiting import Waiting
from art_core.runs import TRAIN_SPLIT, VALIDATION_SPLIT, Retention, RunDirectory
from art_core.runs.plot import plot_rewards
from art_core.trajectories import Trajectory, TrajectoryGroup

logger = logging.getLogger(__name__)
ScenarioT = TypeVar("ScenarioT")
OnStep = Callable[[StepReport], Awaitable[None] | None]


async def train(
    model: TrainableModel[Any],
    play: Callable[[ScenarioT], Awaitable[Trajectory]] | Playable,
    scenarios: Iterable[ScenarioT],
    config: TrainConfig | None = None,
    *,
    validation: Iterable[ScenarioT] | None = None,
    reward: Scorer | None = None,
    on_step: OnStep | None = None,
) -> TrainReport:
    """Train a registered model on rollouts of an agent.

    Each step plays ``groups_per_step`` scenarios ``rollouts_per_group`` times each and
    trains on the groups. A run that was stopped, in whatever way, goes on where it was
    when it is started again: at the last whole step, with the groups that the step
    after it had finished. Cancellation, Ctrl-C and SIGTERM stop it so; a training step
    that is under way is finished first.

    With ``config.warm_start`` the model first learns from examples, as step 1.

    Args:
        play: plays a scenario inside ``model.rollout(scenario)`` and returns the trajectory.
        scenarios: anything that can be written as JSON: dictionaries, strings,
            dataclasses, pydantic models.
        validation: held-out scenarios, played without training every
            ``config.eval_every`` steps, before the first and after the last.
        reward: scores a whole group (``ruler.ruler_score_group``, say), for functions
            that don't set ``trajectory.reward``; None for a group leaves it out.
        on_step: called, and awaited if need be, after each step.

    Raises:
        ScenarioError: there are no scenarios, or one can't be written as JSON.
        RewardError: a trajectory has no reward; names its rollout.
        TooManyFailuresError: more rollouts failed than ``config.max_exceptions``, or all.
        RunMismatchError: the run was begun with other settings.
        ConfigError: the model isn't registered, or its backend can't make a warm start.
        ExampleError: the examples of the warm start can't be learned from.
    """
    config = config or TrainConfig()
    checked = check_scenarios(scenarios, "scenarios")
    held_out = [] if validation is None else check_scenarios(validation, "validation")
    run = model.backend().run_directory(model)
    run.bind(config)
    with (
        LoopDisplay(model.name, config.steps, run.step) as display,
        Waiting(run.path) as waiting,
        stop_on_sigterm(),
    ):
        gatherer = LoopGatherer(
            play=player(play),
            scenarios=checked,
            validation=held_out,
            config=config,
            scorer=reward,
            run=run,
            display=display,
            waiting=waiting,
        )
        loop = _Loop(model, config, gatherer, run, display, on_step)
        try:
            report = await loop.run()
        except asyncio.CancelledError:
            display.note(f"Stopped. Start it again to go on after step {run.step}.")
            raise
    display.summary(report)
    return report


class _Loop:
    def __init__(
        self,
        model: TrainableModel[Any],
        config: TrainConfig,
        gatherer: LoopGatherer,
        run: RunDirectory,
        display: LoopDisplay,
        on_step: OnStep | None,
    ) -> None:
        self._model = model
        self._config = config
        self._gatherer = gatherer
        self._run = run
        self._display = display
        self._on_step = on_step

    async def run(self) -> TrainReport:
        started = time.monotonic()
        await self._warm_start()
        done = await self._model.get_step()
        for step in range(done + 1, self._config.steps + 1):
            await self._evaluate_if_due(step - 1)
            await self._step(step)
        await self._evaluate_if_due(await self._model.get_step(), always=True)
        return TrainReport(
            run_path=self._run.path,
            plot_path=await self._draw(),
            steps=await self._model.get_step(),
            seconds=time.monotonic() - started,
            rows=self._run.metrics.read(),
        )

    async def _warm_start(self) -> None:
        """Learn from examples as step 1, unless that was done; measured before and after."""
        warm_start = self._config.warm_start
        if warm_start is None:
            return
        if await self._model.get_step() == 0:
            backend = self._model.backend()
            if not isinstance(backend, LearnsFromExamples):
                raise ConfigError(
                    f"warm_start is set, and {type(backend).__name__} can't learn from examples",
                    "Use a LocalBackend, or leave warm_start out.",
                )
            await self._evaluate_if_due(0)
            with self._display.learning() as on_progress:
                await backend.train_sft(
                    self._model,
                    warm_start.examples,
                    warm_start.sft,
                    validation=warm_start.validation,
                    on_progress=on_progress,
                )
            self._display.step_done(1, self._written_metrics(1, TRAIN_SPLIT))
        if await self._model.get_step() == 1:
            await self._evaluate_if_due(1, always=True)

    async def _step(self, step: int) -> None:
        gathering = time.monotonic()
        groups, failed = await self._gatherer.step(step)
        training = time.monotonic()
        with self._display.training(step), self._gatherer.waiting.doing(f"training step {step}"):
            result = await self._model.train(groups, self._config)
        if result.step != step:
            raise TrainingError(f"the backend is at step {result.step} after training step {step}")
        figures = {
            "rollouts_failed": float(failed),
            "seconds_gathering": training - gathering,
            "seconds_training": time.monotonic() - training,
        }
        await self._step_done(step, groups, figures)

    async def _step_done(
        self, step: int, groups: list[TrajectoryGroup], figures: dict[str, float]
    ) -> None:
        await asyncio.to_thread(self._run.metrics.append, step, TRAIN_SPLIT, figures)
        best = f"{VALIDATION_SPLIT}/reward" if self._gatherer.validation else None
        retention = Retention(last=self._config.keep_checkpoints, best=best)
        await asyncio.to_thread(self._run.prune, retention)
        metrics = self._written_metrics(step, TRAIN_SPLIT)
        self._display.step_done(step, metrics)
        if self._on_step is not None:
            told = self._on_step(StepReport(step=step, groups=groups, metrics=metrics))
            if inspect.isawaitable(told):
                await self._gatherer.waiting.of(f"on_step of step {step}", told)

    async def _evaluate_if_due(self, step: int, *, always: bool = False) -> None:
        due = always or step % self._config.eval_every == 0
        if not due or not self._gatherer.validation or self._metrics(step, VALIDATION_SPLIT):
            return
        groups = await self._gatherer.evaluation(step)
        await self._model.log(groups, split=VALIDATION_SPLIT)
        self._display.evaluated(step, self._written_metrics(step, VALIDATION_SPLIT))
        await self._draw()

    def _metrics(self, step: int, split: str) -> dict[str, float]:
        """What is known of a split at a step; empty if nothing is."""
        for row in self._run.metrics.read():
            if (row.step, row.split) == (step, split):
                return row.metrics
        return {}

    def _written_metrics(self, step: int, split: str) -> dict[str, float]:
        """The same, just after they were written."""
        metrics = self._metrics(step, split)
        if not metrics:
            raise StorageError(
                f"{self._run.path} has no metrics of step {step}, which were just written",
                "Was it deleted or moved while the run was going? Start the run again.",
            )
        return metrics

    async def _draw(self) -> Path | None:
        run = self._run
        title = f"{run.identity.project}/{run.identity.model}"
        try:
            await asyncio.to_thread(plot_rewards, run.metrics.read(), run.plot_path, title=title)
        except MissingExtraError as error:
            logger.warning("no reward curve is drawn: %s", error)
            return None
        return run.plot_path
