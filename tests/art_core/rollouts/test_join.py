"""Trajectories built by hand, as code written for OpenPipe ART builds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from openai.types.chat.chat_completion import Choice

from art_core.config import StepConfig
from art_core.errors import (
    ConfigError,
    RewardError,
    TrajectoryError,
    UnknownCompletionError,
)
from art_core.rollouts import TrainableModel, join_records
from art_core.trajectories import (
    CompletionStatus,
    History,
    Message,
    Trajectory,
    TrajectoryGroup,
    TrajectoryStatus,
    as_message,
)

if TYPE_CHECKING:
    from scripted_backend import ScriptedBackend


async def choose(model: TrainableModel[Any], messages: list[Any]) -> Choice:
    """A call as OpenPipe's users make it: outside of any rollout."""
    plain: list[Any] = [as_message(message) for message in messages]
    answer = await model.openai_client().chat.completions.create(
        model=model.get_inference_name(), messages=plain
    )
    return answer.choices[0]


async def by_hand(model: TrainableModel[Any], reward: float, turns: int = 2) -> Trajectory:
    trajectory = Trajectory(reward=reward)
    for turn in range(turns):
        trajectory.messages_and_choices.append({"role": "user", "content": f"turn {turn}"})
        trajectory.messages_and_choices.append(await choose(model, trajectory.messages_and_choices))
    return trajectory


def sampled(history: History) -> bytes:
    return bytes(t for t, on in zip(history.token_ids, history.loss_mask, strict=True) if on)


async def test_hand_built_groups_train_on_exactly_the_sampled_tokens(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    backend.script = lambda call: call.last.upper()
    group = TrajectoryGroup([await by_hand(model, 1.0), await by_hand(model, 0.0, turns=1)])
    result = await model.train([group])
    assert result.step == await model.get_step() == 1
    (trained,) = backend.run_directory(model).trajectories.read("train", 1)
    histories = [trajectory.histories for trajectory in trained]
    assert [[sampled(h) for h in each] for each in histories] == [
        [b"TURN 0</>TURN 1</>"],
        [b"TURN 0</>"],
    ]


async def test_sub_agents_in_additional_histories_are_trained_too(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    backend.script = lambda call: call.last.upper()
    trajectory = await by_hand(model, 1.0, turns=1)
    question: Message = {"role": "user", "content": "sub"}
    choice = await choose(model, [question])
    trajectory.additional_histories = [
        History(messages_and_choices=[question, choice]),
        History(messages_and_choices=[question, choice]),
    ]
    join_records(trajectory, backend.records.values())
    assert [sampled(h) for h in trajectory.histories] == [b"TURN 0</>", b"SUB</>"]
    before = list(trajectory.histories)
    join_records(trajectory, backend.records.values())
    assert trajectory.histories == before, "joining again changes nothing"


async def test_histories_that_have_tokens_are_taken_as_they_are() -> None:
    history = History(
        token_ids=[1, 2],
        loss_mask=[False, True],
        logprobs=[None, -0.5],
        policy_versions=[None, 0],
    )
    trajectory = Trajectory(additional_histories=[history])
    join_records(trajectory, [])
    join_records(trajectory, [])
    assert trajectory.histories == [history]


async def test_plain_assistant_messages_are_context(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    messages: list[Any] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "written by hand"},
        {"role": "user", "content": "b"},
    ]
    trajectory = Trajectory(messages_and_choices=[*messages, await choose(model, messages)])
    join_records(trajectory, backend.records.values())
    (history,) = trajectory.histories
    assert b"written by hand" in bytes(history.token_ids)
    assert b"written by hand" not in sampled(history)


async def test_a_choice_of_another_api_is_refused_and_says_why(
    model: TrainableModel[Any],
) -> None:
    foreign = Choice.model_validate(
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}
    )
    trajectory = Trajectory(messages_and_choices=[{"role": "user", "content": "a"}, foreign])
    with pytest.raises(
        UnknownCompletionError,
        match=r"messages_and_choices\[1\] a Choice without completion_id.*dictionary",
    ):
        join_records(trajectory, [])
    group = TrajectoryGroup([trajectory.model_copy(update={"reward": r}) for r in (0.0, 1.0)])
    with pytest.raises(UnknownCompletionError, match="trajectory 0 of group 0 has"):
        await model.train([group])


async def test_a_choice_without_record_is_refused(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    trajectory = await by_hand(model, 1.0, turns=1)
    with pytest.raises(UnknownCompletionError, match="of which there is no record"):
        join_records(trajectory, [])


async def test_a_choice_that_was_abandoned_is_refused(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    trajectory = await by_hand(model, 1.0, turns=1)
    records = [
        record.model_copy(update={"status": CompletionStatus.ABANDONED})
        for record in backend.records.values()
    ]
    with pytest.raises(TrajectoryError, match="which was abandoned"):
        join_records(trajectory, records)


async def test_a_rollouts_own_choices_are_not_trained_twice(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    async with model.rollout() as trajectory:
        question: Message = {"role": "user", "content": "a"}
        trajectory.messages_and_choices = [question, await choose(model, [question])]
    join_records(trajectory, backend.records.values())
    assert len(trajectory.histories) == 1


async def test_what_cannot_be_trained_on_is_named(
    backend: ScriptedBackend, model: TrainableModel[Any]
) -> None:
    one, two = await by_hand(model, 1.0), await by_hand(model, 0.0)
    with pytest.raises(ConfigError, match="there are no groups to train on"):
        await model.train([])
    with pytest.raises(ConfigError, match=r"group 0 .* has 1 trajectories.*at least two"):
        await model.train([TrajectoryGroup([one])])
    two.reward = None
    with pytest.raises(RewardError, match=r"trajectory 1 of group 0 has no reward"):
        await model.train([TrajectoryGroup([one, two])])
    async with model.rollout() as silent:
        silent.reward = 0.0
    with pytest.raises(TrajectoryError, match=f"rollout {silent.rollout_id} has no sampled tokens"):
        await model.train([TrajectoryGroup([one, silent])])
    assert await model.get_step() == 0


async def test_failed_trajectories_are_left_out_and_a_group_is_trained_once(
    model: TrainableModel[Any],
) -> None:
    failed = Trajectory(status=TrajectoryStatus.FAILED)
    group = TrajectoryGroup([await by_hand(model, 1.0), await by_hand(model, 0.0), failed])
    await model.train([group], StepConfig(learning_rate=1e-4))
    with pytest.raises(TrajectoryError, match=f"group {group.id} was trained on in step 1"):
        await model.train([group])
    with pytest.raises(ConfigError, match="has 1 trajectories to train on; 1 failed"):
        await model.train([TrajectoryGroup([await by_hand(model, 1.0), failed])])
