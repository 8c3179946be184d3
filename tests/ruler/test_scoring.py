"""Scoring a group: by id, whole or not at all, everything else kept."""

from __future__ import annotations

import random

from art_core.trajectories import TrajectoryGroup, TrajectoryStatus
from tests.ruler.fake_judge import FakeJudge
from tests.ruler.groups import MakeRuler, quality_group, rewards, trajectory


async def test_rewards_are_the_judges_scores(make_ruler: MakeRuler) -> None:
    scored = await make_ruler().score(quality_group(0.1, 0.9, 0.4))
    assert rewards(scored) == [0.1, 0.9, 0.4]
    assert scored.trajectories[1].metadata["ruler_explanation"] == "by rule 0.9"
    assert scored.trajectories[1].metrics["ruler_score"] == 0.9
    assert scored.metrics["ruler/scored"] == 1


async def test_everything_else_is_kept_and_the_original_untouched(make_ruler: MakeRuler) -> None:
    group = TrajectoryGroup(
        [
            trajectory("quality=0.2", metadata={"a": 1}, metrics={"m": 2}, reward=5, logs=["x"]),
            trajectory("quality=0.3", metadata={"b": [1, "c"]}),
            ValueError("a failed rollout"),
        ],
        metadata={"scenario": "s1"},
        metrics={"n": 3},
        logs=["y"],
    )
    before = group.model_dump_json()
    scored = await make_ruler().score(group)
    assert group.model_dump_json() == before
    assert (scored.id, scored.metadata, scored.logs) == (group.id, {"scenario": "s1"}, ["y"])
    assert [e.message for e in scored.exceptions] == ["a failed rollout"]
    assert scored.metrics["n"] == 3
    first, second = scored.trajectories
    assert first.metadata["a"] == 1
    assert first.metrics["m"] == 2
    assert first.metrics["independent_reward"] == 5
    assert first.logs == ["x"]
    assert second.metadata["b"] == [1, "c"]
    assert "independent_reward" not in second.metrics
    TrajectoryGroup.model_validate_json(scored.model_dump_json())


async def test_scores_follow_ids_whatever_the_order(
    make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    qualities = [i / 10 for i in range(8)]
    for seed in range(4):
        random.Random(seed).shuffle(qualities)
        fake_judge.otherwise = "reordered" if seed % 2 else "good"
        scored = await make_ruler(cache=False, seed=seed).score(quality_group(*qualities))
        assert rewards(scored) == qualities


async def test_the_order_shown_is_shuffled_by_the_seed_and_not_by_the_group(
    make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    qualities = [0.1, 0.2, 0.3, 0.4, 0.5]
    for seed, order in ((0, qualities), (0, qualities[::-1]), (1, qualities)):
        await make_ruler(cache=False, seed=seed).score(quality_group(*order))
    same, reversed_group, other_seed = (fake_judge.prompt(i) for i in range(3))
    assert same == reversed_group
    places = [[p.index(f"quality={q}") for q in qualities] for p in (same, other_seed)]
    assert sorted(places[0]) != places[0] or sorted(places[1]) != places[1]
    assert same != other_seed


async def test_identical_trajectories_are_judged_once(
    make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    scored = await make_ruler().score(quality_group(0.3, 0.8, 0.3, 0.3))
    assert rewards(scored) == [0.3, 0.8, 0.3, 0.3]
    assert fake_judge.prompt().count("quality=0.3") == 1
    assert scored.metrics["ruler/duplicates"] == 2


async def test_a_group_of_identical_trajectories_is_not_judged_as_empty(
    make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    assert rewards(await make_ruler().score(quality_group(0.7, 0.7))) == [0.7, 0.7]
    assert "quality=0.7" in fake_judge.prompt()


async def test_failed_rollouts_are_not_judged(make_ruler: MakeRuler, fake_judge: FakeJudge) -> None:
    group = TrajectoryGroup(
        [trajectory("quality=0.6"), trajectory("quality=0.9", status=TrajectoryStatus.FAILED)]
    )
    assert rewards(await make_ruler().score(group)) == [0.6, None]
    assert "quality=0.9" not in fake_judge.prompt()


async def test_a_group_with_nothing_to_judge_costs_nothing(
    make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    group = TrajectoryGroup([ValueError("x")])
    assert await make_ruler().score(group) is group
    assert fake_judge.requests == []
