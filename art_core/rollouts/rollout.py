"""One rollout: from its ticket to a trajectory with the recorded tokens."""

from __future__ import annotations

import traceback
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

from art_core.config import CaptureConfig
from art_core.errors import ConfigError
from art_core.rollouts.attempts import to_its_end
from art_core.rollouts.backend import RolloutMode, RolloutTicket
from art_core.rollouts.capture import Capture, capturing
from art_core.rollouts.closed import ClosedRollout
from art_core.rollouts.model import Model, TrainableModel
from art_core.rollouts.play import ObservedRollout, current_play
from art_core.rollouts.prompted import NO_CALLS, PromptedRollout, ServesPrompted
from art_core.rollouts.scenarios import scenario_json
from art_core.trajectories import RolloutAccess, Trajectory, TrajectoryStatus

OTHER_CALLS = "other_model_calls"
"""Metadata: what other models were asked inside a rollout and answered. Never trained on."""

_current: ContextVar[Trajectory | None] = ContextVar("art_trajectory", default=None)


def current_trajectory() -> Trajectory | None:
    """That of the open rollout this code runs in; None outside of one."""
    return _current.get()


@asynccontextmanager
async def run_rollout(
    model: Model[Any],
    scenario: object,
    *,
    mode: RolloutMode | None,
    seed: int | None,
    tags: Mapping[str, str] | None,
    capture: CaptureConfig,
) -> AsyncGenerator[Trajectory]:
    """See `Model.rollout`."""
    metadata = {} if scenario is None else {"scenario": scenario_json(scenario)}
    play = current_play()
    if play is not None:
        mode = mode or play.mode
        seed = play.next_seed() if seed is None else seed
        tags = {**play.tags, **(tags or {})}
    ticket = await _open(model, mode=mode or "train", seed=seed, tags=tags)
    trajectory = Trajectory(rollout_id=ticket.rollout_id, metadata=metadata)
    trajectory.set_access(
        RolloutAccess(base_url=ticket.base_url, api_key=ticket.api_key, headers=ticket.headers)
    )
    captured = Capture(
        ticket=ticket, config=_with_own_host(model, capture), policy_names=_names(model)
    )
    outer = _current.get()
    # Set back by value: the end may run in another task, where a token isn't valid.
    _current.set(trajectory)
    try:
        async with capturing(captured):
            yield trajectory
    except BaseException as error:
        trajectory.status = TrajectoryStatus.FAILED
        trajectory.error = "".join(traceback.format_exception(error))
        error.add_note(f"In rollout {ticket.rollout_id} of model {model.name!r}.")
        raise
    finally:
        _current.set(outer)
        trajectory.set_access(None)
        closed = await to_its_end(_close(model, ticket.rollout_id))
        if isinstance(closed, PromptedRollout):
            closed.fill(trajectory)
        else:
            fill(trajectory, closed)
        if captured.answered:
            trajectory.metadata[OTHER_CALLS] = [*captured.answered]
        if play is not None:
            play.observed.append(
                ObservedRollout(
                    rollout_id=ticket.rollout_id,
                    redirected=captured.redirected,
                    passed=captured.passed,
                    calls=closed.calls,
                )
            )


def fill(trajectory: Trajectory, closed: ClosedRollout) -> None:
    """Put a rollout's records into its trajectory.

    ``histories`` hold all that may be trained on. Where the agent hasn't set
    ``messages_and_choices`` itself, they (and ``tools``) become those of the history
    with the last completion: the conversation that gave the answer.
    """
    trajectory.histories = closed.histories
    if closed.last is None:
        trajectory.log(NO_CALLS)
    elif not trajectory.messages_and_choices:
        main = closed.histories[closed.last]
        trajectory.messages_and_choices = list(main.messages_and_choices)
        trajectory.tools = main.tools


async def _open(
    model: Model[Any], *, mode: RolloutMode, seed: int | None, tags: Mapping[str, str] | None
) -> RolloutTicket:
    if isinstance(model, TrainableModel):
        return await model.backend().open_rollout(model, mode=mode, seed=seed, tags=tags)
    return await _relaying(model).open_prompted(model, tags=tags)


async def _close(model: Model[Any], rollout_id: str) -> ClosedRollout | PromptedRollout:
    if isinstance(model, TrainableModel):
        return await model.backend().close_rollout(model, rollout_id)
    return await _relaying(model).close_prompted(model, rollout_id)


def _relaying(model: Model[Any]) -> ServesPrompted:
    backend = model.backend()
    if not isinstance(backend, ServesPrompted):
        raise ConfigError(
            f"{type(backend).__name__} can't play rollouts of the prompted model {model.name!r}",
            "Register it with a LocalBackend.",
        )
    return backend


def _names(model: Model[Any]) -> frozenset[str] | None:
    """What an agent may call the model at its server; None: anything."""
    if not isinstance(model, TrainableModel):
        return None
    return frozenset({model.name, model.get_inference_name(), f"{model.project}/{model.name}"})


def _with_own_host(model: Model[Any], capture: CaptureConfig) -> CaptureConfig:
    """A prompted model's own client goes to its host: that is a call to the model."""
    if isinstance(model, TrainableModel) or model.inference_base_url is None:
        return capture
    parts = urlsplit(model.inference_base_url)
    own = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    return capture.model_copy(update={"hosts": (*capture.hosts, own)})
