"""A judge that answers wrongly, late or not at all: sent back, retried, or unscored."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from art_core.trajectories import Trajectory
from ruler import JudgeAnswerError, JudgeSetupError, Patience
from tests.ruler.fake_judge import FakeJudge
from tests.ruler.groups import MakeRuler, quality_group, rewards

REPAIRABLE = [
    "missing", "extra", "duplicated", "out of range", "negative", "string", "bool", "nan",
    "infinite", "bare numbers", "two objects", "truncated", "cut off", "wrong ids", "list",
    "words", "deep", "empty", "refusal",
]  # fmt: skip


@pytest.mark.parametrize("behaviour", REPAIRABLE)
async def test_an_unusable_answer_is_sent_back_with_the_reason(
    make_ruler: MakeRuler, fake_judge: FakeJudge, behaviour: str
) -> None:
    fake_judge.script = [behaviour]
    scored = await make_ruler().score(quality_group(0.25, 0.75))
    assert rewards(scored) == [0.25, 0.75]
    assert scored.metrics["ruler/unusable_answers"] == 1
    assert scored.metrics["ruler/calls"] == 2
    complaint = fake_judge.requests[1]["messages"][-1]["content"]
    assert complaint.startswith("That answer can't be used: ")


@pytest.mark.parametrize("behaviour", REPAIRABLE)
async def test_a_judge_that_never_learns_leaves_the_group_unscored(
    make_ruler: MakeRuler, fake_judge: FakeJudge, behaviour: str
) -> None:
    fake_judge.otherwise = behaviour
    group = quality_group(0.25, 0.75)
    group.trajectories[0].reward = 1.0
    scored = await make_ruler().score(group)
    assert rewards(scored) == [None, None]
    assert scored.trajectories[0].metrics["independent_reward"] == 1.0
    assert scored.metrics["ruler/scored"] == 0
    assert scored.metrics["ruler/calls"] == 3
    assert scored.metrics["ruler/prompt_tokens"] == 300
    assert "unscored" in scored.logs[-1]


@pytest.mark.parametrize("behaviour", ["prose", "reordered", "reasoning"])
async def test_harmless_habits_need_no_repair(
    make_ruler: MakeRuler, fake_judge: FakeJudge, behaviour: str
) -> None:
    fake_judge.otherwise = behaviour
    scored = await make_ruler().score(quality_group(0.25, 0.75))
    assert rewards(scored) == [0.25, 0.75]
    assert scored.metrics["ruler/unusable_answers"] == 0


@pytest.mark.parametrize("behaviour", ["429", "500", "503", "408", "429 after 0", "hang up"])
async def test_a_passing_failure_is_retried(
    make_ruler: MakeRuler, fake_judge: FakeJudge, behaviour: str
) -> None:
    fake_judge.script = [behaviour, behaviour]
    scored = await make_ruler().score(quality_group(0.25, 0.75))
    assert rewards(scored) == [0.25, 0.75]
    assert scored.metrics["ruler/retries"] == 2


@pytest.mark.parametrize("behaviour", ["trickle", "hang"])
async def test_an_answer_that_never_ends_is_cut_off(
    make_ruler: MakeRuler, fake_judge: FakeJudge, behaviour: str
) -> None:
    fake_judge.script = [behaviour]
    scored = await make_ruler(patience=Patience(first_wait=0.01, timeout=2)).score(
        quality_group(0.25, 0.75)
    )
    assert rewards(scored) == [0.25, 0.75]
    assert scored.metrics["ruler/retries"] == 1


async def test_a_server_that_stays_busy_leaves_the_group_unscored(
    make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    fake_judge.otherwise = "503"
    scored = await make_ruler(patience=Patience(first_wait=0.01, retries=2)).score(
        quality_group(0.25, 0.75)
    )
    assert rewards(scored) == [None, None]
    assert len(fake_judge.requests) == 3


async def test_a_server_that_asks_for_too_long_a_wait_is_given_up(
    make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    fake_judge.otherwise = "429 after 3600"
    assert rewards(await make_ruler().score(quality_group(0.2, 0.7))) == [None, None]
    assert len(fake_judge.requests) == 1


@pytest.mark.parametrize("behaviour", ["401", "403", "404", "quota", "html"])
async def test_a_judge_that_can_never_answer_stops_the_run_at_once(
    make_ruler: MakeRuler, fake_judge: FakeJudge, behaviour: str
) -> None:
    fake_judge.otherwise = behaviour
    with pytest.raises(JudgeSetupError, match="fake at http"):
        await make_ruler().score(quality_group(0.25, 0.75))
    assert len(fake_judge.requests) == 1


async def test_a_run_whose_judge_keeps_failing_stops(
    make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    fake_judge.otherwise = "words"
    ruler = make_ruler(max_failures=3)
    for i in range(2):
        assert await ruler(quality_group(0.1, i / 10 + 0.2)) is None
    assert ruler.unscored == 2
    with pytest.raises(JudgeAnswerError, match=r"3 groups in a row.*no JSON object"):
        await ruler(quality_group(0.1, 0.9))


async def test_a_scored_group_in_between_starts_the_count_afresh(
    make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    ruler = make_ruler(max_failures=2)
    for i, behaviour in enumerate(["words", "good", "words", "good"]):
        fake_judge.otherwise = behaviour
        scored = await ruler(quality_group(0.1, i / 10 + 0.2))
        assert (scored is None) == (behaviour == "words")


async def test_a_named_fallback_takes_over(make_ruler: MakeRuler, fake_judge: FakeJudge) -> None:
    fake_judge.otherwise = "words"

    def by_length(trajectories: Sequence[Trajectory]) -> list[float]:
        return [len(str(one.messages()[-1]["content"])) / 100 for one in trajectories]

    scored = await make_ruler(fallback=by_length).score(quality_group(0.5, 0.25))
    assert rewards(scored) == [0.11, 0.12]
    assert scored.metrics["ruler/fallback"] == 1
