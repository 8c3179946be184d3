"""The open rollouts of one play, and which of them each model call belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from art_core.errors import ConfigError
from art_core.rollouts import TrainableModel
from art_core.rollouts.route import Route, Router, current_router
from art_core.trajectories import Trajectory
from integrations.langgraph.selection import MAIN, Train, policy_of
from integrations.langgraph.tracker import RunTracker, caller, install, tracker

_current: ContextVar[TrainableModel[Any] | None] = ContextVar("art_langgraph_model", default=None)


def current_model() -> TrainableModel[Any] | None:
    """The first model of the play that this code runs in; None outside."""
    return _current.get()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRollouts:
    trajectories: Mapping[str, Trajectory]
    """By the names of their models."""
    tracker: RunTracker
    untouched: Counter[str]
    """Calls that kept their own model, by node."""


@asynccontextmanager
async def open_rollouts(
    models: Sequence[TrainableModel[Any]], scenario: object, train: Train
) -> AsyncGenerator[OpenRollouts]:
    """Open one rollout for each model; calls made inside are routed by who makes them."""
    async with AsyncExitStack() as stack:
        trajectories: dict[str, Trajectory] = {}
        routers: dict[str, Router] = {}
        for model in models:
            trajectories[model.name] = await stack.enter_async_context(model.rollout(scenario))
            router = current_router.get()
            if router is not None:
                routers[model.name] = router
        install()
        run_tracker = RunTracker()
        before = tracker.get(), _current.get()
        tracker.set(run_tracker)
        _current.set(models[0])
        rollouts = OpenRollouts(trajectories=trajectories, tracker=run_tracker, untouched=Counter())
        current_router.set(_by_caller(routers, models[0].name, train, rollouts.untouched))
        try:
            yield rollouts
        finally:
            # By value: the end may run in another task, where a token isn't valid.
            tracker.set(before[0])
            _current.set(before[1])


def _by_caller(
    routers: Mapping[str, Router], main: str, train: Train, untouched: Counter[str]
) -> Router:
    def route() -> Route:
        who = caller()
        policy = policy_of(who, train)
        if policy is None:
            untouched[who.tags.get("node", "no node")] += 1
            return Route(ticket=None)
        if policy == MAIN:
            policy = who.policy if who.policy is not None and who.policy in routers else main
        if policy not in routers:
            raise ConfigError(
                f"node {'/'.join(who.nodes) or '?'} is to be served by {policy!r}, which this "
                "rollout wasn't given",
                f"Name all policies in the decorator: @rollout({main}, {policy}).",
            )
        return replace(routers[policy](), tags=who.tags)

    return route
