"""Hand-built trajectories: joined with the records behind their Choices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeGuard

from art_core.errors import TrajectoryError, UnknownCompletionError
from art_core.trajectories import (
    Completion,
    History,
    MessagesAndChoices,
    Trajectory,
    build_histories,
    choice_completion_id,
    is_choice,
)

if TYPE_CHECKING:
    from openai.types.chat.chat_completion import Choice


def unjoined_completion_ids(trajectory: Trajectory, name: str = "a trajectory") -> list[str]:
    """The completions behind Choices whose tokens aren't in ``histories`` yet.

    ``name`` is what messages call the trajectory.

    Raises:
        UnknownCompletionError: a Choice has no completion id.
    """
    joined = {
        completion_id
        for history in (*trajectory.histories, *trajectory.additional_histories)
        for completion_id in history.completion_ids
    }
    wanted: dict[str, None] = {}
    for where, choice in _choices(trajectory):
        completion_id = choice_completion_id(choice)
        if completion_id is None:
            raise UnknownCompletionError(
                f"{name} has at {where} a Choice without completion_id",
                "It wasn't made by this backend's gateway, or was rebuilt on its way. Pass it as "
                "model.openai_client() returned it, or use model.rollout(); a message that is "
                "only context is passed as a dictionary.",
            )
        if completion_id not in joined:
            wanted[completion_id] = None
    return list(wanted)


def join_records(
    trajectory: Trajectory, completions: Iterable[Completion], name: str = "a trajectory"
) -> None:
    """Complete ``trajectory.histories`` with the records behind its Choices.

    The user's putting a Choice into a trajectory is what attributes its record to it;
    dictionaries are context and are never trained. Additional histories that have
    tokens already are taken as they are. Joining again changes nothing.

    Raises:
        UnknownCompletionError: a Choice has no completion id, or one that isn't among
            ``completions``.
        TrajectoryError: a Choice's record was abandoned or failed.
    """
    known = {completion.id: completion for completion in completions}
    records = [
        _attributed(trajectory, known, completion_id, name)
        for completion_id in unjoined_completion_ids(trajectory, name)
    ]
    ready = [
        history
        for history in trajectory.additional_histories
        if history.token_ids and not _is_among(history, trajectory.histories)
    ]
    if records or ready:
        trajectory.histories = [*trajectory.histories, *ready, *build_histories(records)]


def _is_among(history: History, present: Sequence[History]) -> bool:
    """Whether its completions, or where it names none its tokens, are there already."""
    if history.completion_ids:
        there = {completion_id for other in present for completion_id in other.completion_ids}
        return not there.isdisjoint(history.completion_ids)
    return any(history.token_ids == other.token_ids for other in present)


def _attributed(
    trajectory: Trajectory, known: Mapping[str, Completion], completion_id: str, name: str
) -> Completion:
    record = known.get(completion_id)
    if record is None:
        raise UnknownCompletionError(
            f"{name} has a Choice of completion {completion_id}, of which there is no record",
            "Train on the backend, and in the project, that answered the call.",
        )
    if record.rollout_id is None:
        owner = trajectory.rollout_id or "by-hand"
        record = record.model_copy(update={"rollout_id": owner})
    if not record.may_be_trained:
        raise TrajectoryError(
            f"{name} has a Choice of completion {completion_id}, which was {record.status}",
            "It was asked again or not answered in full: use the answer that came after it.",
        )
    return record


def _choices(trajectory: Trajectory) -> Iterator[tuple[str, Choice]]:
    yield from _choices_of(trajectory.messages_and_choices, "messages_and_choices")
    for index, history in enumerate(trajectory.additional_histories):
        if not history.token_ids:
            where = f"additional_histories[{index}].messages_and_choices"
            yield from _choices_of(history.messages_and_choices, where)


def _choices_of(items: MessagesAndChoices, where: str) -> Iterator[tuple[str, Choice]]:
    for index, item in enumerate(items):
        if _is_choice(item):
            yield f"{where}[{index}]", item


def _is_choice(item: object) -> TypeGuard[Choice]:
    return is_choice(item)
