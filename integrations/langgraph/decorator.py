"""The decorator: a function that runs a graph, still itself when called, a rollout when played."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from langgraph.errors import GraphRecursionError

from art_core.errors import ConfigError
from art_core.rollouts import TrainableModel
from art_core.trajectories import Trajectory, TrajectoryStatus
from integrations.langgraph.outcome import (
    Outcome,
    RewardResult,
    describe_answer,
    read_outcome,
    rewards_by_policy,
)
from integrations.langgraph.routing import OpenRollouts, open_rollouts
from integrations.langgraph.selection import Train

P = ParamSpec("P")
R = TypeVar("R")

RewardFunction = Callable[..., RewardResult | Awaitable[RewardResult]]
"""``reward(answer, *the function's arguments)``."""


class Rollout(Generic[P, R]):
    """A function that runs a graph. `play` makes a rollout of a call of it."""

    __name__: str

    def __init__(
        self,
        function: Callable[P, R],
        *,
        models: tuple[TrainableModel[Any], ...],
        train: Train,
        reward: RewardFunction | None,
        truncated_reward: float | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.models = models
        self._function = function
        self._train: Train = train
        self._reward = reward
        self._truncated_reward = truncated_reward

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __get__(self, owner: object, cls: type | None = None) -> Rollout[..., R]:
        """Methods can be decorated, too."""
        if owner is None:
            return self
        function = cast("Callable[..., R]", self._function)
        bound = functools.partial(function, owner)
        kind: type[Rollout[..., R]] = type(self)
        return kind(
            functools.update_wrapper(bound, function),
            models=self.models,
            train=self._train,
            reward=self._reward,
            truncated_reward=self._truncated_reward,
        )

    async def play(self, *args: P.args, **kwargs: P.kwargs) -> Trajectory:
        """Call the function as one rollout; the trajectory is that of the first model.

        The first argument is the scenario. What the graph raises doesn't get out: it
        makes a failed trajectory whose ``error`` is the traceback and whose metadata
        name the ``failed_node``. A `GraphRecursionError` makes a truncated one.

        Raises:
            ConfigError: a model isn't registered, or a node's policy isn't among the models.
            RewardError: the reward isn't a finite number.
        """
        return (await self.play_all(*args, **kwargs))[self.models[0].name]

    async def play_all(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Trajectory]:
        """`play`, with the trajectories of all models by their names."""
        scenario = args[0] if args else next(iter(kwargs.values()), None)
        async with open_rollouts(self.models, scenario, self._train) as rollouts:
            outcome = await self._run(rollouts, args, kwargs)
        # From here on nothing is captured: a judge's calls are its own.
        if self._reward is not None and outcome.error is None:
            graded = self._reward(outcome.answer, *args, **kwargs)
            outcome.reward = await graded if inspect.isawaitable(graded) else graded
        elif outcome.truncated and outcome.reward is None:
            outcome.reward = self._truncated_reward
        trajectories = dict(rollouts.trajectories)
        rewards = rewards_by_policy(outcome.reward, list(trajectories))
        for name, trajectory in trajectories.items():
            trajectory.reward = rewards[name]
            _describe(trajectory, outcome, rollouts)
        return trajectories

    async def _run(
        self, rollouts: OpenRollouts, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Outcome:
        try:
            result = await self._call(args, kwargs)
        except GraphRecursionError as error:
            return Outcome(truncated=True, note=str(error))
        except Exception as error:
            if (ours := _ours(error)) is not None:
                raise ours from error
            text = "".join(traceback.format_exception(error))
            return Outcome(error=text, failed_node=rollouts.tracker.failed_node(error))
        outcome = Outcome(answer=result) if self._reward is not None else read_outcome(result)
        outcome.truncated = rollouts.tracker.recursion_limit_hit
        return outcome

    async def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        function = cast("Callable[..., Any]", self._function)
        if inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        # A thread for each: the loop's own pool has too few for all rollouts of a step.
        with_context = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollout")
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, with_context)
        finally:
            executor.shutdown(wait=False)


class AsyncRollout(Rollout[P, Coroutine[Any, Any, R]]):
    """A `Rollout` that those who look can tell to be a coroutine function."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]
        return await self._function(*args, **kwargs)


class Decorator(Protocol):
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncRollout[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Rollout[P, R]: ...


def rollout(
    *models: TrainableModel[Any],
    train: Train = "all",
    reward: RewardFunction | None = None,
    truncated_reward: float | None = None,
) -> Decorator:
    """Make rollouts of a function that runs a LangGraph graph.

    Called, the function is what it was. Played (`Rollout.play`, which `art_core.train`
    and ``art_core.TrajectoryGroup(answer.play(q) for _ in range(8))`` do), each chat-model
    call of the graph is served by ``models[0]`` and recorded with its node.

    Args:
        models: one, or all those between which ``train`` and `trace` distribute the nodes.
        train: the nodes that are served: "all"; "traced", only those wrapped with
            `trace`; a list of names; or names with their models. A named node counts
            with all that runs below it. The others keep the model that they name.
        reward: grades the answer, after the capture is over. Without it the function's
            own return value is read: a number is the reward, two values are answer and
            reward, anything else is an answer for a judge to score. With several models
            a reward may also be a dictionary by model name.
        truncated_reward: of a run that the recursion limit cut off, where ``reward``
            isn't given. (``reward`` is called with the answer None.)

    Raises:
        ConfigError: no model, or two of the same name.
    """
    everyone = _all_models(models, train)

    def decorate(function: Callable[..., Any]) -> Any:
        kind: Any = AsyncRollout if inspect.iscoroutinefunction(function) else Rollout
        return kind(
            function,
            models=everyone,
            train=train,
            reward=reward,
            truncated_reward=truncated_reward,
        )

    return cast("Decorator", decorate)


def _all_models(
    models: Sequence[TrainableModel[Any]], train: Train
) -> tuple[TrainableModel[Any], ...]:
    by_name: dict[str, TrainableModel[Any]] = {}
    for model in [*models, *(train.values() if isinstance(train, Mapping) else ())]:
        if by_name.setdefault(model.name, model) is not model:
            raise ConfigError(f"two models are named {model.name!r}", "Rename one of them.")
    if not by_name:
        raise ConfigError("rollout() was given no model", "Use it as @rollout(model).")
    return tuple(by_name.values())


def _describe(trajectory: Trajectory, outcome: Outcome, rollouts: OpenRollouts) -> None:
    if outcome.answer is not None:
        trajectory.metadata["answer"] = describe_answer(outcome.answer)
    if outcome.note:
        trajectory.log(outcome.note)
    if outcome.truncated:
        trajectory.status = TrajectoryStatus.TRUNCATED
    if outcome.error is not None:
        trajectory.status = TrajectoryStatus.FAILED
        trajectory.error = outcome.error
        trajectory.metadata["failed_node"] = outcome.failed_node
    elif not trajectory.histories:
        trajectory.status = TrajectoryStatus.FAILED
        trajectory.error = _no_calls(rollouts)


def _no_calls(rollouts: OpenRollouts) -> str:
    others = ", ".join(f"{node!r} ({count})" for node, count in rollouts.untouched.items())
    seen = f"Calls that kept their own model came from {others}." if others else "None was seen."
    return f"no model call of the nodes that are trained reached the policy. {seen}"


def _ours(error: BaseException) -> ConfigError | None:
    """A mistake in the set-up, which clients wrap as if the connection had failed."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, ConfigError):
            return link
        link = link.__cause__ or link.__context__
    return None
