"""One rollout: from its ticket to a trajectory with the recorded tokens."""

from __future__ import annotations

import traceback
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from art_core.config import CaptureConfig
from art_core.rollouts.attempts import to_its_end
from art_core.rollouts.backend import RolloutMode
from art_core.rollouts.capture import Capture, capturing
from art_core.rollouts.closed import ClosedRollout
from art_core.rollouts.play import ObservedRollout, current_play
from art_core.rollouts.scenarios import scenario_json
from art_core.trajectories import RolloutAccess, Trajectory, TrajectoryStatus

if TYPE_CHECKING:
    from art_core.rollouts.model import TrainableModel

OTHER_CALLS = "other_model_calls"
"""Metadata: what other models were asked inside a rollout and answered. Never trained on."""

_current: ContextVar[Trajectory | None] = ContextVar("art_trajectory", default=None)

NO_CALLS = "no model call reached this rollout"


def current_trajectory() -> Trajectory | None:
    """That of the open rollout this code runs in; None outside of one."""
    return _current.get()


@asynccontextmanager
async def run_rollout(
    model: TrainableModel[Any],
    scenario: object,
    *,
    mode: RolloutMode | None,
    seed: int | None,
    tags: Mapping[str, str] | None,
    capture: CaptureConfig,
) -> AsyncGenerator[Trajectory]:
    """See `TrainableModel.rollout`."""
    backend = model.backend()
    metadata = {} if scenario is None else {"scenario": scenario_json(scenario)}
    play = current_play()
    if play is not None:
        mode = mode or play.mode
        seed = play.next_seed() if seed is None else seed
        tags = {**play.tags, **(tags or {})}
    ticket = await backend.open_rollout(model, mode=mode or "train", seed=seed, tags=tags)
    trajectory = Trajectory(rollout_id=ticket.rollout_id, metadata=metadata)
    trajectory.set_access(
        RolloutAccess(base_url=ticket.base_url, api_key=ticket.api_key, headers=ticket.headers)
    )
    names = frozenset({model.name, model.get_inference_name(), f"{model.project}/{model.name}"})
    captured = Capture(ticket=ticket, config=capture, policy_names=names)
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
        closed = await to_its_end(backend.close_rollout(model, ticket.rollout_id))
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
