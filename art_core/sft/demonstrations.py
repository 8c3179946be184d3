"""Demonstrations: the good ones of many rollouts, whoever played them.

A prompted stronger model (distillation), a script, or the policy itself (rejection
sampling): what plays is an ordinary rollout function.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from art_core.config import SftConfig, WarmStart
from art_core.errors import ConfigError, ExampleError, RewardError
from art_core.rollouts import gather_trajectory_groups
from art_core.rollouts.scoring import Scorer, finished_trajectories, score_group
from art_core.runs.files import write_whole
from art_core.sft.conversations import is_answer
from art_core.trajectories import (
    Trajectory,
    TrajectoryGroup,
    as_message,
)

ScenarioT = TypeVar("ScenarioT")
Play = Callable[[ScenarioT], Awaitable[Trajectory]]


def best_of(
    groups: Iterable[TrajectoryGroup], *, keep: int = 1, min_reward: float | None = None
) -> list[Trajectory]:
    """The best ``keep`` trajectories of each group, those below ``min_reward`` left out.

    Failed rollouts don't count; of equally good ones the earlier is better.

    Raises:
        RewardError: a trajectory has no reward.
        ConfigError: ``keep`` is below 1.
    """
    if keep < 1:
        raise ConfigError(f"keep is {keep}", "Keep at least one trajectory of each group.")
    best: list[Trajectory] = []
    for group in groups:
        finished = finished_trajectories(group)
        ranked = sorted(finished, key=lambda each: _reward(each, group), reverse=True)
        best += [
            trajectory
            for trajectory in ranked[:keep]
            if min_reward is None or _reward(trajectory, group) >= min_reward
        ]
    return best


async def demonstrate(
    play: Play[ScenarioT],
    scenarios: Sequence[ScenarioT],
    *,
    attempts: int = 1,
    keep: int = 1,
    min_reward: float | None = None,
    reward: Scorer | None = None,
    concurrency: int = 16,
    timeout: float | None = 600.0,
    max_exceptions: int | float = 0.25,
) -> list[Trajectory]:
    """Play each scenario ``attempts`` times and keep the best (see `best_of`).

    Args:
        play: as for `art_core.train`, with any model in it: an `art_core.Model` behind an
            OpenAI-compatible URL, LiteLLM, a script, or the policy itself.
        reward: scores a whole group, for functions that set no reward.
        timeout: seconds for each rollout.

    Raises:
        TooManyFailuresError: more rollouts failed than ``max_exceptions``, or all.
        RewardError: a trajectory has no reward.
        ExampleError: none was good enough.
    """

    async def scored(group: TrajectoryGroup) -> TrajectoryGroup | None:
        return await score_group(group, reward)

    pending = [
        TrajectoryGroup([_again(play, scenario) for _ in range(attempts)]) for scenario in scenarios
    ]
    groups = await gather_trajectory_groups(
        pending,
        pbar_desc="demonstrations",
        max_exceptions=max_exceptions,
        after_each=scored,
        concurrency=concurrency,
        timeout=timeout,
    )
    best = best_of(groups, keep=keep, min_reward=min_reward)
    if not best:
        raise ExampleError(
            f"none of {len(scenarios)} scenarios was played with a reward of {min_reward} or more",
            "Lower min_reward, raise attempts, or use a stronger model.",
        )
    return best


def write_examples(path: Path, trajectories: Iterable[Trajectory]) -> int:
    """Write conversations in OpenAI's fine-tuning format, whole or not at all.

    One line for each conversation in which the assistant says something; returns how many.

    Raises:
        StorageError: it couldn't be written.
    """
    lines = [line for trajectory in trajectories for line in _lines(trajectory)]
    write_whole(path, [line.encode() + b"\n" for line in lines])
    return len(lines)


async def demonstrated(
    path: Path,
    play: Play[ScenarioT],
    scenarios: Sequence[ScenarioT],
    *,
    attempts: int = 1,
    min_reward: float | None = None,
    reward: Scorer | None = None,
    sft: SftConfig | None = None,
) -> WarmStart:
    """A warm start from demonstrations, for `TrainConfig`.

    They are played once and kept in ``path``: a run that goes on finds them there.

    Raises:
        TooManyFailuresError, RewardError, ExampleError: see `demonstrate`.
    """
    if not path.exists():
        played = await demonstrate(
            play, scenarios, attempts=attempts, min_reward=min_reward, reward=reward
        )
        write_examples(path, played)
    return WarmStart(examples=path, sft=sft or SftConfig())


def _again(play: Play[ScenarioT], scenario: ScenarioT) -> Callable[[], Awaitable[Trajectory]]:
    return lambda: play(scenario)


def _reward(trajectory: Trajectory, group: TrajectoryGroup) -> float:
    if trajectory.reward is None:
        raise RewardError(
            f"a trajectory of group {group.id} has no reward",
            "Set trajectory.reward, or pass reward= (a scorer).",
        )
    return trajectory.reward


def _lines(trajectory: Trajectory) -> list[str]:
    histories = [
        (history.messages_and_choices, history.tools) for history in trajectory.histories
    ] or [
        (trajectory.messages_and_choices, trajectory.tools),
        *((h.messages_and_choices, h.tools) for h in trajectory.additional_histories),
    ]
    lines: list[str] = []
    for items, tools in histories:
        messages = [as_message(item) for item in items]
        if any(map(is_answer, messages)):
            fields = {"messages": messages, **({"tools": tools} if tools else {})}
            lines.append(json.dumps(fields, ensure_ascii=False))
    return lines
