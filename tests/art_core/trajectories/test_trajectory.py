"""Trajectories and groups: what users may pass, what comes back, and what is refused."""

from __future__ import annotations

import decimal
import fractions
import json
import math
from datetime import UTC, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from openai.types.chat.chat_completion import Choice
from pydantic import ValidationError

from art_core.errors import RewardError, TrajectoryError
from art_core.trajectories import (
    ExceptionRecord,
    History,
    Message,
    SamplingParams,
    Tool,
    Trajectory,
    TrajectoryGroup,
    TrajectoryStatus,
    as_message,
    choice_completion_id,
)

ANSWER = ChatCompletion.model_validate(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "bot",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "call-1",
                            "type": "function",
                            "function": {"name": "look", "arguments": '{"at": 1.0}'},
                        }
                    ],
                },
                "completion_id": "record-1",
                "token_ids": [4, 5],
            }
        ],
    }
)
CHOICE = ANSWER.choices[0]
TOOL: Tool = {"type": "function", "function": {"name": "look", "parameters": {}}}


def test_a_trajectory_as_openpipe_art_builds_it() -> None:
    trajectory = Trajectory(
        messages_and_choices=[{"role": "user", "content": "look"}, CHOICE],
        tools=[TOOL],
        additional_histories=[History(messages_and_choices=[CHOICE])],
        reward=1,
        metrics={"won": True, "turns": 2},
        metadata={"scenario": "s1"},
        logs=["started"],
    )
    trajectory.messages_and_choices.append({"role": "tool", "tool_call_id": "call-1"})
    trajectory.log("looked")
    assert trajectory.reward == 1.0
    assert trajectory.messages_and_choices[1] is CHOICE
    assert [m["role"] for m in trajectory.messages()] == ["user", "assistant", "tool"]
    assert trajectory.logs == ["started", "looked"]
    assert trajectory.for_logging()["messages"][1]["trainable"] is True
    assert "reward=1.0" in str(trajectory)


def test_a_choice_keeps_its_completion_id_through_json() -> None:
    trajectory = Trajectory(messages_and_choices=[CHOICE])
    back = Trajectory.model_validate_json(trajectory.model_dump_json())
    (item,) = back.messages_and_choices
    assert isinstance(item, Choice)
    assert choice_completion_id(item) == "record-1"
    assert item == CHOICE
    assert back == trajectory


def test_a_message_of_the_client_library_is_a_message() -> None:
    message = ChatCompletionMessage(role="assistant", content="hi")
    trajectory = Trajectory(messages_and_choices=[message])
    assert trajectory.messages_and_choices == [{"role": "assistant", "content": "hi"}]


def test_a_choice_reads_as_the_message_in_it() -> None:
    message = as_message(CHOICE)
    assert message["role"] == "assistant"
    assert "content" not in message
    assert message["tool_calls"] == [
        {
            "id": "call-1",
            "type": "function",
            "function": {"name": "look", "arguments": '{"at": 1.0}'},
        }
    ]


@pytest.mark.parametrize("item", ["hello", 3, None, {"content": "no role"}, ANSWER])
def test_what_is_no_message_is_refused_with_what_would_be(item: object) -> None:
    with pytest.raises((TrajectoryError, ValidationError), match="a message dictionary with a"):
        Trajectory(messages_and_choices=[item])


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        (0, 0.0),
        (True, 1.0),
        (-2.5, -2.5),
        (np.float32(0.5), 0.5),
        (np.bool_(False), 0.0),
        (np.array([3]), 3.0),
        (fractions.Fraction(1, 4), 0.25),
        (decimal.Decimal("1.5"), 1.5),
    ],
)
def test_numbers_and_bools_are_rewards(reward: float, expected: float) -> None:
    assert Trajectory(reward=reward).reward == expected
    trajectory = Trajectory()
    trajectory.reward = reward
    assert trajectory.reward == expected
    assert type(trajectory.reward) is float


@pytest.mark.parametrize(
    "reward",
    [
        "1.0",
        "",
        b"1",
        math.nan,
        math.inf,
        -math.inf,
        1j,
        [1.0],
        {"score": 1},
        np.array([1, 2]),
        10**400,
        decimal.Decimal("NaN"),
        decimal.Decimal("sNaN"),
        object(),
    ],
)
def test_anything_else_is_no_reward(reward: object) -> None:
    with pytest.raises(RewardError, match="A reward must be a finite number, or a bool"):
        Trajectory(reward=reward)
    trajectory = Trajectory(reward=0.5)
    with pytest.raises(RewardError):
        trajectory.reward = reward  # type: ignore[assignment]
    assert trajectory.reward == 0.5


def test_a_reward_of_json_is_checked_too() -> None:
    with pytest.raises((RewardError, ValidationError), match="reward"):
        Trajectory.model_validate_json('{"reward": NaN}')
    with pytest.raises((RewardError, ValidationError), match="reward"):
        Trajectory.model_validate_json('{"reward": "high"}')


def test_an_unset_reward_is_none_and_can_be_unset() -> None:
    trajectory = Trajectory(reward=1.0)
    trajectory.reward = None
    assert trajectory.reward is None
    assert Trajectory().reward is None


def test_a_misspelt_field_is_an_error() -> None:
    with pytest.raises(ValidationError, match="rewards"):
        Trajectory(rewards=1.0)


def test_durations_add_up() -> None:
    trajectory = Trajectory()
    for _ in range(2):
        with trajectory.track_duration("search"):
            pass
    with pytest.raises(KeyError), trajectory.track_duration("failing"):
        raise KeyError
    trajectory.finish()
    assert set(trajectory.metrics) == {"duration/search", "duration/failing", "duration"}
    assert all(value >= 0 for value in trajectory.metrics.values())


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001  (the traceback is what is wanted)
        return caught


def test_a_group_keeps_trajectories_and_exceptions_apart() -> None:
    trajectory = Trajectory(reward=1.0)
    group = TrajectoryGroup(
        [trajectory, raised(ValueError("no luck"))],
        exceptions=[raised(KeyError("k"))],
        metadata={"scenario": "s"},
    )
    assert list(group) == [trajectory]
    assert len(group) == 1
    assert [error.type for error in group.exceptions] == [
        "builtins.KeyError",
        "builtins.ValueError",
    ]
    assert group.exceptions[1].message == "no luck"
    assert "raise error" in group.exceptions[1].traceback
    assert group.metadata == {"scenario": "s"}


def test_a_group_of_something_else_is_refused() -> None:
    with pytest.raises(TrajectoryError, match="is made of Trajectory objects"):
        TrajectoryGroup([3])  # type: ignore[list-item]


@pytest.mark.parametrize("given", [None, 3, "text", {"a": 1}])
@pytest.mark.parametrize("name", ["trajectories", "exceptions"])
def test_what_is_no_list_is_named(name: str, given: Any) -> None:
    with pytest.raises(TrajectoryError, match=f"{name} is "):
        TrajectoryGroup(**{name: given})  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match=f"{name} is "):
        TrajectoryGroup.model_validate_json(json.dumps({name: given}))


def test_groups_have_names_of_their_own() -> None:
    assert TrajectoryGroup().id != TrajectoryGroup().id


json_numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
json_values = st.recursive(
    st.none() | st.booleans() | json_numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def plain_message(role: str, content: str | None, more: Message) -> Message:
    return {**more, "role": role, "content": content}


def choice(content: str, record: str) -> Choice:
    message = ChatCompletionMessage(role="assistant", content=content)
    return CHOICE.model_copy(update={"message": message, "completion_id": record})


plain_messages = st.builds(
    plain_message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.none() | st.text(),
    st.dictionaries(st.text(max_size=5), json_values, max_size=2),
)
choices = st.builds(choice, st.text(), st.text())
conversations: st.SearchStrategy[list[Message | Choice]] = st.lists(
    plain_messages | choices, max_size=3
)


@st.composite
def histories(draw: st.DrawFn) -> History:
    finite = st.floats(allow_nan=False, allow_infinity=False)
    sampled = st.tuples(st.integers(0, 2**32 - 1), st.just(True), finite, st.integers(0, 9))
    observed = st.tuples(st.integers(0, 9), st.just(False), st.none(), st.none())
    tokens = draw(st.lists(sampled | observed, max_size=5))
    return History(
        messages_and_choices=draw(conversations),
        tools=draw(st.none() | st.just([TOOL])),
        token_ids=[token for token, _, _, _ in tokens],
        loss_mask=[trained for _, trained, _, _ in tokens],
        logprobs=[logprob for _, _, logprob, _ in tokens],
        policy_versions=[version for _, _, _, version in tokens],
        completion_ids=draw(st.lists(st.text(), max_size=2)),
    )


numbers = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False)
trajectories = st.builds(
    Trajectory,
    messages_and_choices=conversations,
    tools=st.none() | st.just([TOOL]),
    additional_histories=st.lists(histories(), max_size=1),
    histories=st.lists(histories(), max_size=2),
    reward=st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False),
    metrics=st.dictionaries(st.text(), numbers, max_size=3),
    metadata=st.dictionaries(st.text(), json_values, max_size=3),
    logs=st.lists(st.text(), max_size=2),
    status=st.sampled_from(TrajectoryStatus),
    error=st.none() | st.text(),
    rollout_id=st.none() | st.text(),
    start_time=st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(minutes=-210))])),
)
groups = st.builds(
    TrajectoryGroup,
    st.lists(trajectories, max_size=2),
    exceptions=st.lists(
        st.builds(ExceptionRecord, type=st.text(), message=st.text(), traceback=st.text()),
        max_size=1,
    ),
    metadata=st.dictionaries(st.text(), json_values, max_size=2),
    metrics=st.dictionaries(st.text(), numbers, max_size=2),
    logs=st.lists(st.text(), max_size=2),
)


@settings(max_examples=150, deadline=None)
@given(groups)
def test_groups_survive_json_without_loss(group: TrajectoryGroup) -> None:
    back = TrajectoryGroup.model_validate_json(group.model_dump_json())
    assert back == group
    assert back.model_dump_json() == group.model_dump_json()
    for before, after in zip(group, back, strict=True):
        kinds = [type(value) for value in before.metrics.values()]
        assert [type(value) for value in after.metrics.values()] == kinds


def test_a_metric_that_is_not_a_number_survives_json() -> None:
    group = TrajectoryGroup([Trajectory(metrics={"ratio": math.nan})], metrics={"x": math.inf})
    back = TrajectoryGroup.model_validate_json(group.model_dump_json())
    assert math.isnan(back.trajectories[0].metrics["ratio"])
    assert back.metrics == {"x": math.inf}


@settings(max_examples=100, deadline=None)
@given(
    st.builds(
        SamplingParams,
        temperature=st.floats(0, 100),
        top_p=st.floats(0, 1, exclude_min=True),
        seed=st.none() | st.integers(-(2**63), 2**63),
        stop=st.lists(st.text()).map(tuple),
        logit_bias=st.dictionaries(st.integers(0, 9), st.floats(-100, 100), max_size=3),
    )
)
def test_sampling_parameters_survive_json(sampling: SamplingParams) -> None:
    assert SamplingParams.model_validate_json(sampling.model_dump_json()) == sampling
