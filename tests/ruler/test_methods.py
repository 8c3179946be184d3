"""Ways of judging: pairwise, absolute, by function, by a panel."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest

from art_core.errors import ConfigError
from art_core.trajectories import Trajectory
from ruler import Absolute, Criterion, FunctionJudge, OpenAIServer, Pairwise, Panel, Relative
from ruler.methods.function import ScoreFunction
from ruler.methods.pairwise import fixtures
from tests.ruler.fake_judge import FakeJudge, by_quality
from tests.ruler.groups import MakeRuler, quality_group, rewards


def fixed(*scores: Any) -> ScoreFunction:
    """A judge that always says the same."""

    def judge(trajectories: Sequence[Trajectory]) -> Sequence[Any]:
        return scores

    return judge


def ranks(values: Sequence[float | None]) -> list[int]:
    known = [value for value in values if value is not None]
    assert len(known) == len(values)
    return [sorted(known).index(value) for value in known]


async def test_pairwise_ranks_a_group(make_ruler: MakeRuler) -> None:
    qualities = [0.2, 0.9, 0.5, 0.7]
    scored = await make_ruler(mode="pairwise").score(quality_group(*qualities))
    assert ranks(rewards(scored)) == [0, 3, 1, 2]
    assert scored.metrics["ruler/calls"] == 12
    assert scored.metrics["ruler/order_changed_winner"] == 0


async def test_pairwise_in_a_large_group_asks_each_about_a_few(
    make_ruler: MakeRuler, judge_model: OpenAIServer
) -> None:
    qualities = [i / 24 for i in range(24)]
    judge = Pairwise(model=judge_model, opponents=6)
    scored = await make_ruler(judge).score(quality_group(*qualities))
    assert scored.metrics["ruler/calls"] == 24 * 6
    got = ranks(rewards(scored))
    right = sum((got[a] < got[b]) for a, b in combinations(range(24), 2))
    assert right / len(list(combinations(range(24), 2))) > 0.85


async def test_a_judge_that_prefers_what_it_sees_first_changes_nothing(
    make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    """It answers each pair both ways, so each pair is a tie."""
    seen: list[str] = []

    def first(text: str) -> float:
        seen.append(text)
        return len(seen) % 2

    fake_judge.rule = first
    scored = await make_ruler(mode="pairwise", concurrency=1).score(quality_group(0.2, 0.9))
    assert rewards(scored) == [0.5, 0.5]
    assert scored.metrics["ruler/order_changed_winner"] == 1


@pytest.mark.parametrize("behaviour", ["wrong ids", "words", "truncated", "list"])
async def test_one_match_without_an_answer_leaves_the_group_unscored(
    make_ruler: MakeRuler, fake_judge: FakeJudge, behaviour: str
) -> None:
    fake_judge.script, fake_judge.otherwise = ["good"] * 5, behaviour  # of 3 pairs both ways
    scored = await make_ruler(mode="pairwise", concurrency=1).score(quality_group(0.1, 0.2, 0.3))
    assert rewards(scored) == [None, None, None]


@pytest.mark.parametrize(
    ("players", "opponents"), [(1, 6), (2, 6), (7, 6), (8, 6), (9, 4), (40, 6)]
)
def test_fixtures_are_connected_and_even(players: int, opponents: int) -> None:
    pairs = fixtures(players, opponents, "seed")
    assert len(pairs) == len(set(pairs))
    assert all(a < b for a, b in pairs)
    met = [sum(player in pair for pair in pairs) for player in range(players)]
    assert set(met) == {min(opponents, players - 1)}
    reached = {0}
    for _ in range(players):
        reached |= {b for pair in pairs for a, b in (pair, pair[::-1]) if a in reached}
    assert len(reached) == players


async def test_absolute_is_the_weighted_mean_of_the_criteria(
    make_ruler: MakeRuler, fake_judge: FakeJudge, judge_model: OpenAIServer
) -> None:
    criteria = [
        Criterion(name="correct", description="The answer is right.", weight=3),
        Criterion(name="brief", description="No needless words."),
    ]
    answers = iter([0.8, 0.4])

    def differ(body: dict[str, object]) -> dict[str, object]:
        return {
            name: {"explanation": f"{name}!", "score": next(answers)}
            for name in ("correct", "brief")
        }

    fake_judge.right_answer = differ  # type: ignore[method-assign,assignment]
    scored = await make_ruler(Absolute(model=judge_model, criteria=criteria)).score(
        quality_group(0.5, 0.5)
    )
    (reward, same) = rewards(scored)
    assert reward == same == pytest.approx(0.7)
    one = scored.trajectories[0]
    assert (one.metrics["ruler/correct"], one.metrics["ruler/brief"]) == (0.8, 0.4)
    assert one.metadata["ruler_explanation"] == "correct: correct! brief: brief!"
    assert len(fake_judge.requests) == 1
    assert "- correct: The answer is right." in fake_judge.system()


async def test_absolute_judges_each_alone(make_ruler: MakeRuler, fake_judge: FakeJudge) -> None:
    scored = await make_ruler(mode="absolute", rubric="Be right.").score(quality_group(0.3, 0.6))
    assert rewards(scored) == [0.3, 0.6]
    assert all(
        ("quality=0.3" in fake_judge.prompt(i)) != ("quality=0.6" in fake_judge.prompt(i))
        for i in range(2)
    )


async def test_a_function_can_judge(make_ruler: MakeRuler) -> None:
    def in_order(trajectories: Sequence[Trajectory]) -> list[float]:
        return [i / 10 for i in range(len(trajectories))]

    async def later(trajectories: Sequence[Trajectory]) -> list[float]:
        return in_order(trajectories)

    for function in (in_order, later):
        scored = await make_ruler(function).score(quality_group(0.5, 0.6, 0.5))
        assert rewards(scored) == [0.0, 0.1, 0.2]


@pytest.mark.parametrize(
    "returned", [[0.5], [0.5, 1.5], [0.5, float("nan")], ["1", "0"], [None, 1]]
)
async def test_a_function_that_returns_no_scores_leaves_the_group_unscored(
    make_ruler: MakeRuler, returned: list[object]
) -> None:
    scored = await make_ruler(fixed(*returned)).score(quality_group(0.5, 0.6))
    assert rewards(scored) == [None, None]


async def test_what_a_function_raises_comes_through(make_ruler: MakeRuler) -> None:
    def broken(_: Sequence[Trajectory]) -> list[float]:
        raise KeyError("my bug")

    with pytest.raises(KeyError, match="my bug"):
        await make_ruler(broken).score(quality_group(0.5, 0.6))


async def test_a_panel_averages_and_reports_agreement(make_ruler: MakeRuler) -> None:
    scored = await make_ruler([fixed(0.0, 0.5, 1.0), fixed(0.2, 0.5, 0.6)]).score(
        quality_group(0.1, 0.2, 0.3)
    )
    assert rewards(scored) == pytest.approx([0.1, 0.5, 0.8])
    assert scored.metrics["ruler/judges"] == 2
    assert scored.metrics["ruler/agreement_tau"] == 1
    assert 0.5 < scored.metrics["ruler/agreement_alpha"] < 1


async def test_a_panel_can_vote(make_ruler: MakeRuler) -> None:
    judges = [
        FunctionJudge(fixed(*scores))
        for scores in ([0.1, 0.2, 0.9], [0.3, 0.5, 0.4], [1.0, 0.0, 0.2])
    ]
    scored = await make_ruler(Panel(judges=judges, aggregate="vote")).score(
        quality_group(0.1, 0.2, 0.3)
    )
    assert rewards(scored) == [0.0, 0.5, 1.0]


async def test_a_panel_needs_its_quorum(
    make_ruler: MakeRuler, fake_judge: FakeJudge, judge_model: OpenAIServer
) -> None:
    fake_judge.otherwise = "words"
    judges = [Relative(model=judge_model), FunctionJudge(fixed(0.0, 1.0))]
    assert rewards(await make_ruler(judges).score(quality_group(0.1, 0.2))) == [None, None]
    panel = Panel(judges=judges, quorum=1)
    assert rewards(await make_ruler(panel).score(quality_group(0.1, 0.2))) == [0.0, 1.0]


async def test_a_judge_that_sits_twice_is_asked_twice_in_two_orders(
    make_ruler: MakeRuler, fake_judge: FakeJudge, judge_model: OpenAIServer
) -> None:
    qualities = [i / 10 for i in range(10)]
    one = Relative(model=judge_model)
    scored = await make_ruler([one, one]).score(quality_group(*qualities))
    assert rewards(scored) == pytest.approx(qualities)
    assert len(fake_judge.requests) == 2
    orders = [[fake_judge.prompt(i).index(f"quality={q}") for q in qualities[1:]] for i in range(2)]
    assert ranks(orders[0]) != ranks(orders[1])


async def test_a_rubric_can_be_made_from_the_group(
    make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    group = quality_group(0.1, 0.2)
    for one in group:
        one.metadata["reference"] = "Paris"

    def rubric(trajectories: Sequence[Trajectory]) -> str:
        return f"The answer is {trajectories[0].metadata['reference']}."

    await make_ruler(rubric=rubric).score(group)
    assert "The answer is Paris." in fake_judge.system()


def test_criteria_must_be_usable(judge_model: OpenAIServer, make_ruler: MakeRuler) -> None:
    with pytest.raises(ConfigError, match="name of its own"):
        Absolute(model=judge_model, criteria=[])
    with pytest.raises(ConfigError, match="weight of criterion 'a' is 0"):
        Criterion(name="a", description="", weight=0)
    with pytest.raises(ConfigError, match="need mode='absolute'"):
        make_ruler(rubric=[Criterion(name="a", description="b")])
    with pytest.raises(ConfigError, match="opponents is 1"):
        Pairwise(model=judge_model, opponents=1)
    with pytest.raises(ConfigError, match="quorum is 2 of 1"):
        Panel(judges=[Relative(model=judge_model)], quorum=2)


async def test_noise_in_a_judge_is_averaged_by_a_panel(
    make_ruler: MakeRuler, fake_judge: FakeJudge, judge_model: OpenAIServer
) -> None:
    noise = random.Random(0)
    fake_judge.rule = lambda text: min(1, max(0, by_quality(text) + noise.gauss(0, 0.1)))
    qualities = [0.2, 0.4, 0.6, 0.8]
    errors: list[float] = []
    for judges in (1, 16):
        got = rewards(
            await make_ruler([Relative(model=judge_model)] * judges).score(
                quality_group(*qualities)
            )
        )
        errors.append(max(abs((g or 0) - q) for g, q in zip(got, qualities, strict=True)))
    assert errors[1] < 0.07
