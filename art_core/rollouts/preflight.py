"""`check`: one group before any training, to see what would go wrong."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from art_core.config import StepConfig, TrainConfig
from art_core.errors import ArtError
from art_core.rollouts.attempts import Limits, within
from art_core.rollouts.model import TrainableModel
from art_core.rollouts.play import ObservedRollout, Play, derive_seed, playing
from art_core.rollouts.playable import Playable, Player, player
from art_core.rollouts.playing import checked
from art_core.rollouts.preflight_report import CallCheck, CheckReport, RolloutCheck, StepCost
from art_core.rollouts.scenarios import check_scenarios, scenario_json
from art_core.rollouts.scoring import Scorer
from art_core.trajectories import Trajectory, TrajectoryGroup

ScenarioT = TypeVar("ScenarioT")


@runtime_checkable
class MeasuresSteps(Protocol):
    """A backend that can try a training step without training anything."""

    async def measure_step(
        self, model: TrainableModel[Any], group: TrajectoryGroup, config: StepConfig
    ) -> StepCost:
        """Do the step's work on one group with a trainer that is thrown away."""
        ...


async def check(
    model: TrainableModel[Any],
    play: Callable[[ScenarioT], Awaitable[Trajectory]] | Playable,
    scenarios: Iterable[ScenarioT],
    config: TrainConfig | None = None,
    *,
    reward: Scorer | None = None,
    solved: float = 1.0,
) -> CheckReport:
    """Play one group of the first scenario and report on it; nothing is trained.

    Args:
        play, scenarios, config, reward: as `train` is to be given them.
        solved: the reward from which on a rollout counts as a success.

    Raises:
        ScenarioError: there are no scenarios, or one can't be written as JSON.
        ConfigError: the model isn't registered.
    """
    config = config or TrainConfig()
    scenario = check_scenarios(scenarios, "scenarios")[0]
    backend = model.backend()
    started = time.monotonic()
    tries = await _play_group(player(play), scenario, config)
    seconds = time.monotonic() - started
    group = TrajectoryGroup([t.trajectory for t in tries if t.trajectory is not None])
    problem = await _score(group, reward)
    trainable = [t for t in group.trajectories if any(h.sampled_tokens for h in t.histories)]
    cost = None
    if len(trainable) > 1 and isinstance(backend, MeasuresSteps):
        cost = await backend.measure_step(model, _contrasted(trainable), config)
    return CheckReport(
        scenario=scenario_json(scenario),
        rollouts=[_rollout_check(each) for each in tries],
        solved=solved,
        scoring_problem=problem,
        seconds=seconds,
        groups_per_step=config.groups_per_step,
        step_cost=cost,
    )


@dataclass(slots=True)
class _Try:
    """One rollout of the group, and all that was seen of it."""

    trajectory: Trajectory | None = None
    error: Exception | None = None
    observed: list[ObservedRollout] = field(default_factory=list[ObservedRollout])


async def _play_group(play: Player, scenario: Any, config: TrainConfig) -> list[_Try]:
    slots = asyncio.Semaphore(Limits(concurrency=config.concurrency).concurrency or 1)

    async def one(number: int) -> _Try:
        current = Play("train", derive_seed(config.seed, "check", number), {"check": str(number)})
        tried = _Try(observed=current.observed)
        async with slots:
            try:
                tried.trajectory = await within(
                    _play_one(play, scenario, current), config.rollout_timeout
                )
            except Exception as error:  # noqa: BLE001  (what the user's code raises is the result)
                tried.error = error
        return tried

    return await asyncio.gather(*(one(n) for n in range(config.rollouts_per_group)))


async def _play_one(play: Player, scenario: Any, current: Play) -> Trajectory:
    with playing(current):
        result: object = play(scenario)
        if inspect.isawaitable(result):
            result = await result
    return checked(result)


async def _score(group: TrajectoryGroup, scorer: Scorer | None) -> str | None:
    """Score the group in place; what went wrong, if something did."""
    if scorer is None or not group.trajectories:
        return None
    try:
        scored = await scorer(group)
    except ArtError as error:
        return f"the scorer failed: {error}"
    if scored is None:
        return "the scorer left the group unscored"
    by_id = {trajectory.rollout_id: trajectory for trajectory in scored.trajectories}
    for trajectory in group.trajectories:
        given = by_id.get(trajectory.rollout_id)
        trajectory.reward = given.reward if given is not None else None
    return None


def _contrasted(trajectories: Sequence[Trajectory]) -> TrajectoryGroup:
    """A group with a spread of rewards, so that a step on it does all its work."""
    return TrajectoryGroup(
        [t.model_copy(update={"reward": float(n % 2)}) for n, t in enumerate(trajectories)]
    )


def _rollout_check(tried: _Try) -> RolloutCheck:
    trajectory = tried.trajectory
    passed: Counter[str] = Counter()
    calls: list[CallCheck] = []
    for observed in tried.observed:
        passed.update(observed.passed)
        calls += observed.calls
    return RolloutCheck(
        rollout_ids=[observed.rollout_id for observed in tried.observed],
        calls=calls,
        redirected=sum(observed.redirected for observed in tried.observed),
        passed=dict(passed),
        histories=len(trajectory.histories) if trajectory else 0,
        tokens=sum(len(h.token_ids) for h in trajectory.histories) if trajectory else 0,
        reward=trajectory.reward if trajectory else None,
        error=None if tried.error is None else f"{type(tried.error).__name__}: {tried.error}",
    )
