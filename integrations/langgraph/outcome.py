"""What a decorated function's return value means: an answer, a reward, or both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.messages import BaseMessage
from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from art_core.errors import RewardError
from art_core.trajectories import check_reward

RewardResult = float | Mapping[str, float] | None
"""One reward for all policies of a rollout, or one each; None: a judge scores."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How one run of the function went."""

    answer: Any = None
    reward: RewardResult = None
    truncated: bool = False
    note: str = ""
    error: str | None = None
    """The traceback of a run that failed."""
    failed_node: str | None = None


def read_outcome(result: Any) -> Outcome:
    """A number is the reward, ``(answer, reward)`` is both, anything else is the answer."""
    if isinstance(result, tuple):
        pair = cast("tuple[Any, ...]", result)
        if len(pair) == 2:
            return Outcome(answer=pair[0], reward=pair[1])
    value = cast("Any", result)
    return Outcome(reward=value) if is_number(value) else Outcome(answer=value)


def rewards_by_policy(reward: RewardResult, policies: Sequence[str]) -> dict[str, float | None]:
    """Each policy's reward.

    Raises:
        RewardError: one isn't a finite number (or None), or a policy's is missing.
    """
    if isinstance(reward, Mapping):
        if set(reward) != set(policies):
            raise RewardError(
                f"reward is for {sorted(reward)}, the rollout's policies are {sorted(policies)}",
                "Give each policy its reward, or one number for all.",
            )
        return {name: check_reward(reward[name]) for name in policies}
    value = None if reward is None else check_reward(reward)
    return dict.fromkeys(policies, value)


def is_number(value: object) -> bool:
    """Whether a value is a scalar: a Python number or bool, or one of numpy or torch."""
    if isinstance(value, int | float):
        return True
    return hasattr(value, "item") and getattr(value, "shape", None) == ()


def describe_answer(answer: Any) -> JsonValue:
    """The answer as JSON, for the trajectory's metadata; of messages the (last) text."""
    if isinstance(answer, BaseMessage):
        return answer.text
    if isinstance(answer, dict) and "messages" in answer:
        messages = cast("list[Any]", answer["messages"])
        if messages and isinstance(messages[-1], BaseMessage):
            return messages[-1].text
    return cast("JsonValue", to_jsonable_python(answer, fallback=str))
