"""RULER's two functions under the names and signatures that OpenPipe ART's users know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field
from rich.console import Console

from art_core.errors import JudgeError
from art_core.trajectories import Message, Trajectory, TrajectoryGroup
from ruler.judges.litellm_model import LiteLLMModel
from ruler.methods.judge import stops_the_run
from ruler.rewarding import with_rewards
from ruler.rubric import DEFAULT_RUBRIC
from ruler.scorer import Ruler


class TrajectoryScore(BaseModel):
    """Score and explanation of one trajectory."""

    trajectory_id: str = Field(description="Its number, counted from 1.")
    explanation: str
    score: float = Field(description="From 0 to 1.")


async def ruler(
    message_lists: Sequence[Sequence[Message]],
    judge_model: str = "openai/o3",
    extra_litellm_params: Mapping[str, Any] | None = None,
    rubric: str = DEFAULT_RUBRIC,
    *,
    debug: bool = False,
) -> list[TrajectoryScore]:
    """Score conversations against each other; the scores are in their order.

    Raises:
        JudgeError: the judge gave no usable scores.
    """
    if not message_lists:
        return []
    judge = _ruler(judge_model, extra_litellm_params, rubric)
    case = judge.case(
        TrajectoryGroup(Trajectory(messages_and_choices=list(one)) for one in message_lists)
    )
    verdict = await judge.verdict(case)
    scores = [
        TrajectoryScore(trajectory_id=str(number), explanation=one.explanation, score=one.score)
        for number, one in enumerate(verdict.judgements, start=1)
    ]
    if debug:
        _show(scores)
    return scores


async def ruler_score_group(
    group: TrajectoryGroup,
    judge_model: str = "openai/o3",
    extra_litellm_params: Mapping[str, Any] | None = None,
    rubric: str = DEFAULT_RUBRIC,
    *,
    swallow_exceptions: bool = False,
    debug: bool = False,
) -> TrajectoryGroup | None:
    """The group with the judge's scores as rewards, as `Ruler.score` gives it.

    Explanations are also in each trajectory's ``logs``. With ``swallow_exceptions``
    a group that the judge failed on is None, as ``after_each`` of
    `art_core.gather_trajectory_groups` takes it: dropped. A judge that can't work at
    all (wrong key, spent budget) is an error all the same.

    Raises:
        JudgeError: the judge gave no usable scores, unless swallowed.
    """
    judge = _ruler(judge_model, extra_litellm_params, rubric)
    case = judge.case(group)
    if not case.trajectories:
        return group
    try:
        verdict = await judge.verdict(case)
    except JudgeError as error:
        if not swallow_exceptions or stops_the_run(error):
            raise
        Console(stderr=True).print(f"ruler: group {group.id} is dropped: {error}", markup=False)
        return None
    scored = with_rewards(group, case, verdict, None)
    for trajectory, judgement in zip(
        judge.case(scored).trajectories, verdict.judgements, strict=True
    ):
        trajectory.logs = [*trajectory.logs, f"RULER explanation: {judgement.explanation}"]
    if debug:
        _show(verdict.judgements)
    return scored


def _ruler(judge_model: str, params: Mapping[str, Any] | None, rubric: str) -> Ruler:
    return Ruler(LiteLLMModel(model=judge_model, params=dict(params or {})), rubric)


def _show(scores: Sequence[object]) -> None:
    console = Console(stderr=True)
    for score in scores:
        console.print(score, markup=False)
