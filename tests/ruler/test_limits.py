"""What judging may use: cache, budget, concurrency; and settings that can't be used."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from art_core.errors import ConfigError, RewardError, StorageError
from ruler import Budget, BudgetSpentError, JudgeSetupError, OpenAIServer, Price, weighted
from tests.ruler.fake_judge import FakeJudge
from tests.ruler.groups import MakeRuler, quality_group, rewards


async def test_answers_are_cached_on_disk_and_only_good_ones(
    make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    fake_judge.script = ["words"]
    await make_ruler().score(quality_group(0.25, 0.75))
    again = await make_ruler().score(quality_group(0.75, 0.25))
    assert rewards(again) == [0.75, 0.25]
    assert again.metrics["ruler/cached"] == 1
    assert again.metrics["ruler/calls"] == 0
    assert len(fake_judge.requests) == 2
    await make_ruler(rubric="another").score(quality_group(0.75, 0.25))
    assert len(fake_judge.requests) == 3


async def test_costs_are_counted_and_bounded(make_ruler: MakeRuler, fake_judge: FakeJudge) -> None:
    model = OpenAIServer(
        base_url=fake_judge.url, model="fake", price=Price(prompt=1000, completion=10_000)
    )
    ruler = make_ruler(model, budget=Budget(usd=0.3))
    scored = await ruler.score(quality_group(0.1, 0.2))
    assert scored.metrics["ruler/cost_usd"] == pytest.approx(0.2)
    assert scored.metrics["ruler/completion_tokens"] == 10
    await ruler.score(quality_group(0.1, 0.3))
    assert ruler.spent.cost_usd == pytest.approx(0.4)
    with pytest.raises(BudgetSpentError, match=r"0\.4000 of 0\.3 US\$"):
        await ruler.score(quality_group(0.1, 0.4))
    assert rewards(await ruler.score(quality_group(0.2, 0.1))) == [0.2, 0.1]  # from the cache


async def test_a_budget_in_tokens(make_ruler: MakeRuler) -> None:
    ruler = make_ruler(budget=Budget(tokens=100))
    await ruler.score(quality_group(0.1, 0.2))
    with pytest.raises(BudgetSpentError, match="110 of 100 tokens"):
        await ruler.score(quality_group(0.1, 0.4))


async def test_a_budget_in_money_needs_a_price(make_ruler: MakeRuler) -> None:
    ruler = make_ruler(budget=Budget(usd=1))
    await ruler.score(quality_group(0.1, 0.2))
    with pytest.raises(JudgeSetupError, match=r"what fake at .* costs isn't known"):
        await ruler.score(quality_group(0.1, 0.4))


async def test_concurrency_is_bounded_over_all_groups(
    make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    fake_judge.delay = 0.05
    ruler = make_ruler(concurrency=3)
    groups = await asyncio.gather(*(ruler(quality_group(0.1, i / 20)) for i in range(3, 13)))
    assert None not in groups
    assert fake_judge.most_at_once == 3


def test_a_ruler_serves_one_event_loop_after_another(make_ruler: MakeRuler) -> None:
    ruler = make_ruler(concurrency=1)

    async def several(start: int) -> None:
        await asyncio.gather(*(ruler(quality_group(0.1, (start + i) / 50)) for i in range(3)))

    for start in (6, 9, 12):
        asyncio.run(several(start))


async def test_judge_and_own_reward_can_be_mixed(make_ruler: MakeRuler) -> None:
    group = quality_group(0.5, 1.0)
    for one in group:
        one.reward = 2.0
    scored = await make_ruler(combine=weighted(judge=0.5, own=0.25)).score(group)
    assert rewards(scored) == [0.75, 1.0]
    assert scored.trajectories[0].metrics["ruler_score"] == 0.5
    with pytest.raises(RewardError, match="reward is None"):
        await make_ruler(combine=weighted(judge=0.5, own=0.25)).score(quality_group(0.1, 0.2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"judge": 3}, "judge is 3"),
        ({"judge": []}, "no judges"),
        ({"mode": "best"}, "mode is 'best'"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"max_failures": 0}, "max_failures is 0"),
    ],
)
def test_what_cant_be_used_is_named(
    make_ruler: MakeRuler, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_ruler(**options)


async def test_a_cache_that_cant_be_used_is_an_error(make_ruler: MakeRuler, tmp_path: Path) -> None:
    path = tmp_path / "broken.sqlite"
    path.write_text("this is no database, " * 100)
    with pytest.raises(StorageError, match=r"broken\.sqlite"):
        await make_ruler(cache=path).score(quality_group(0.1, 0.2))
