"""`evaluate`: held-out scenarios, played without training."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from art_core.config import TrainConfig
from art_core.rollouts.display import LoopDisplay
from art_core.rollouts.gathering import LoopGatherer
from art_core.rollouts.model import Model
from art_core.rollouts.playable import Playable, player
from art_core.rollouts.scenarios import check_scenarios
from art_core.rollouts.scoring import Scorer
from art_core.rollouts.waiting import Waiting
from art_core.runs import VALIDATION_SPLIT, group_metrics
from art_core.trajectories import Trajectory, TrajectoryGroup

ScenarioT = TypeVar("ScenarioT")


async def evaluate(
    model: Model[Any],
    play: Callable[[ScenarioT], Awaitable[Trajectory]] | Playable,
    scenarios: Iterable[ScenarioT],
    config: TrainConfig | None = None,
    *,
    reward: Scorer | None = None,
) -> list[TrajectoryGroup]:
    """Play held-out scenarios with a registered model, trained or prompted, as `train` does.

    The groups are written to the model's run directory (split ``val``), where
    ``art compare`` finds them. Evaluated again at the same step, they replace the earlier.

    Args:
        play: plays a scenario inside ``model.rollout(scenario)`` of this model.
        config: its ``eval_rollouts``, ``seed``, ``concurrency``, ``rollout_timeout``,
            ``retries`` and ``max_exceptions`` hold. With the one that a model was trained
            with, each scenario has the seed that it had there.
        reward: scores a whole group, for functions that don't set ``trajectory.reward``.

    Raises:
        ScenarioError: there are no scenarios, or one can't be written as JSON.
        RewardError: a trajectory has no reward; names its rollout.
        TooManyFailuresError: more rollouts failed than ``config.max_exceptions``, or all.
        ConfigError: the model isn't registered, or nothing answers its calls.
    """
    config = config or TrainConfig()
    held_out = check_scenarios(scenarios, "scenarios")
    run = model.backend().run_directory(model)
    with LoopDisplay(model.name, 1, 0) as display, Waiting(run.path) as waiting:
        gatherer = LoopGatherer(
            play=player(play),
            scenarios=held_out,
            validation=held_out,
            config=config,
            scorer=reward,
            run=run,
            display=display,
            waiting=waiting,
        )
        groups = await gatherer.evaluation(run.step)
        await model.log(groups, split=VALIDATION_SPLIT)
        display.evaluated(run.step, group_metrics(groups))
    return groups
