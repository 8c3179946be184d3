"""The whole of AutoRL on a real backend with a tiny model; and its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import art_core as art
from art_core.config import CaptureConfig
from art_core.errors import ConfigError, ScenarioError
from art_core.trajectories import TrajectoryGroup
from ruler import (
    BaseModelJudge,
    JudgeAnswerError,
    OpenAIServer,
    Patience,
    Scenario,
    autorl,
    load_scenarios,
    make_scenarios,
    sift_scenarios,
    split_scenarios,
)
from ruler.auto.likeness import RELATED, likeness
from ruler.auto.winning import WinRate, win_rate
from tests.ruler.fake_judge import FakeJudge
from tests.ruler.groups import MakeRuler, trajectory
from tests.ruler.test_scenarios import make, writes


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[art.LocalBackend]:
    async with art.LocalBackend(tmp_path / "runs", dtype="float32") as backend:
        yield backend


@pytest.fixture
async def model(backend: art.LocalBackend, tiny_model_folder: Path) -> art.TrainableModel[None]:
    model = art.TrainableModel(name="bot", project="tests", base_model=str(tiny_model_folder))
    await model.register(backend)
    return model


def by_length(text: str) -> float:
    """Long answers are good ones."""
    return min(1.0, len(text) / 400)


def writes_and_judges(judge: FakeJudge) -> None:
    """One server for both: orders are answered with scenarios, recordings with scores."""
    judge.rule = by_length
    grade = judge.right_answer
    writes(judge)
    write = judge.right_answer

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        orders = "You write tasks" in str(body["messages"][0]["content"])
        return write(body) if orders else grade(body)

    judge.right_answer = answer  # type: ignore[method-assign]


async def test_from_a_description_to_a_report(
    model: art.TrainableModel[None],
    backend: art.LocalBackend,
    fake_judge: FakeJudge,
    judge_model: OpenAIServer,
) -> None:
    writes_and_judges(fake_judge)

    async def agent(scenario: Scenario) -> art.Trajectory:
        async with model.rollout(scenario) as trajectory:
            await model.openai_client().chat.completions.create(
                model=model.get_inference_name(),
                messages=[{"role": "user", "content": scenario.task}],
                max_tokens=8,
            )
        return trajectory

    config = art.TrainConfig(steps=2, groups_per_step=2, rollouts_per_group=3, eval_every=2)
    options: dict[str, Any] = {
        "judge": judge_model, "task": "Say something.", "scenarios": 10, "tries": 2,
        "config": config, "cache": False,
    }  # fmt: skip
    report = await autorl(model, agent, **options)
    run = backend.run_directory(model)
    assert await model.get_step() == 2
    assert len(report.held_out) == 2
    assert len(report.trained_on) + len(report.dropped) == 8
    assert not {one.id for one in report.held_out} & {one.id for one in report.trained_on}
    assert len(load_scenarios(run.path / "auto" / "scenarios.jsonl")) == 10
    win = report.win_rate
    assert win.wins + win.ties + win.losses + win.unjudged == 2
    assert set(report.training.rewards("val")) == {0, 2}
    trained = run.trajectories.read("train", 1)
    assert all(one.metrics["ruler_score"] == one.reward for group in trained for one in group)
    assert any("In this task success means: It says" in fake_judge.system(i)
               for i in range(len(fake_judge.requests)))  # fmt: skip

    asked = len(fake_judge.requests)
    again = await autorl(model, agent, **options)
    assert again.trained_on == report.trained_on
    assert again.held_out == report.held_out
    # Only the final comparison is made again.
    assert len(fake_judge.requests) - asked <= 4


def scenario_set(made: list[Scenario], tasks: list[str]) -> list[Scenario]:
    from ruler.auto.scenario import task_id

    return [
        one.model_copy(update={"task": task, "id": task_id(task)})
        for one, task in zip(made, tasks, strict=True)
    ]


async def test_a_split_doesnt_leak(fake_judge: FakeJudge, judge_model: OpenAIServer) -> None:
    writes(fake_judge)
    made = await make(judge_model, n=40)
    to_train, held_out = split_scenarios(made, validation=0.25, seed=1)
    assert len(held_out) <= 10
    assert len(to_train) + len(held_out) == 40
    assert max(likeness(a.task, b.task) for a in to_train for b in held_out) < RELATED
    assert set(Counter(one.difficulty for one in held_out)) == {1, 2, 3, 4, 5}
    assert split_scenarios(made, validation=0.25, seed=1) == (to_train, held_out)
    assert split_scenarios(made, validation=0.25, seed=2)[1] != held_out


async def test_what_cant_be_split_is_said(fake_judge: FakeJudge, judge_model: OpenAIServer) -> None:
    writes(fake_judge)
    made = await make(judge_model, n=4)
    same = scenario_set(made, [f"book a table for {n} people" for n in range(4)])
    with pytest.raises(ScenarioError, match="4 scenarios in 1 related groups"):
        split_scenarios(same)
    with pytest.raises(ConfigError, match="validation is 1"):
        split_scenarios(made, validation=1)


async def test_scenarios_that_teach_nothing_are_left_out(
    fake_judge: FakeJudge, judge_model: OpenAIServer
) -> None:
    writes(fake_judge)
    made = await make(judge_model, n=6)
    outcomes = {
        made[0].id: [0, 0, 0, 0],
        made[1].id: [1, 1, 1, 1],
        made[2].id: [0, 1, 0, 1],
        made[3].id: [0.5, 0.5, 0.5, 0.5],
        made[4].id: [0, 0, 0, 1],
    }
    left = {id_: list(values) for id_, values in outcomes.items()}

    async def play(scenario: Scenario) -> art.Trajectory:
        if scenario.id not in left:
            raise ValueError("this one always breaks")
        return trajectory("x", reward=left[scenario.id].pop())

    sifted = await sift_scenarios(made, play, rollouts=4)
    assert sifted.kept == [made[2], made[4]]
    assert sifted.dropped == {
        made[0].id: "never succeeds",
        made[1].id: "always succeeds",
        made[3].id: "all rollouts alike",
        made[5].id: "unscored or failed",
    }
    assert sifted.rates[made[4].id] == 0.25


async def test_a_win_is_a_win_in_both_orders(make_ruler: MakeRuler, fake_judge: FakeJudge) -> None:
    low, high = trajectory("quality=0.1"), trajectory("quality=0.9")
    pairs = [(low, high), (low, high), (high, low), (low, low), (None, high)]
    won = await win_rate(pairs, make_ruler(mode="pairwise"))
    assert (won.wins, won.ties, won.losses, won.unjudged) == (2, 1, 1, 1)
    assert won.rate == pytest.approx(2.5 / 4)
    low_bound, high_bound = won.interval or (0, 0)
    assert low_bound < 2.5 / 4 < high_bound
    fake_judge.otherwise = "words"
    lost = await win_rate([(low, high)], make_ruler(mode="pairwise", cache=False))
    assert lost == WinRate(wins=0, ties=0, losses=0, unjudged=1)
    assert lost.rate is None
    assert str(lost) == "no pair could be judged"


async def test_held_out_groups_are_scored_on_their_own_merits(
    make_ruler: MakeRuler, fake_judge: FakeJudge, judge_model: OpenAIServer
) -> None:
    from ruler.auto.judging import Judges

    writes(fake_judge)
    one, other = await make_scenarios(judge=judge_model, task="x", n=2, cache=False)
    del fake_judge.right_answer
    judges = Judges(judge_model, make_ruler(), "Be good.", [other])
    for scenario, at_once in ((one, 1), (other, 2)):
        fake_judge.requests.clear()
        group = TrajectoryGroup(
            [
                trajectory(f"quality={q}", metadata={"scenario": scenario.model_dump(mode="json")})
                for q in (0.2, 0.7)
            ]
        )
        scored = await judges.score(group)
        assert scored is not None
        assert [t.reward for t in scored] == [0.2, 0.7]
        assert len(fake_judge.requests) == at_once


async def test_the_policys_base_model_can_judge(
    model: art.TrainableModel[None], backend: art.LocalBackend, make_ruler: MakeRuler
) -> None:
    """A random model's answers are never usable; that they are its own is what is tested."""
    judge = BaseModelJudge(model, params={"max_tokens": 8})
    ruler = make_ruler(judge, patience=Patience(repairs=1))
    scored = await ruler.score(TrajectoryGroup([trajectory("a"), trajectory("b")]))
    assert [one.reward for one in scored] == [None, None]
    assert scored.metrics["ruler/calls"] == 2
    assert scored.metrics["ruler/completion_tokens"] == 16
    assert scored.metrics["ruler/cost_usd"] == 0
    await ruler.score(TrajectoryGroup([trajectory("a"), trajectory("c")]))
    twin = art.TrainableModel(name="bot-judge", project="tests", base_model=model.base_model)
    assert backend.run_directory(twin).step == 0


async def test_a_judge_asked_inside_a_rollout_is_no_part_of_it(
    backend: art.LocalBackend, tiny_model_folder: Path, make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    """Even where the judge's host is one whose calls go to the policy."""
    host = fake_judge.url.removeprefix("http://").removesuffix("/v1")
    model = art.TrainableModel(
        name="captured",
        project="tests",
        base_model=str(tiny_model_folder),
        capture=CaptureConfig(hosts=(host,)),
    )
    await model.register(backend)
    async with model.rollout("x") as rollout:
        scored = await make_ruler().score(
            TrajectoryGroup([trajectory("quality=0.1"), trajectory("quality=0.2")])
        )
    assert [one.reward for one in scored] == [0.1, 0.2]
    assert len(fake_judge.requests) == 1
    assert rollout.histories == []


async def test_a_training_run_whose_judge_keeps_failing_stops_and_says_so(
    model: art.TrainableModel[None], make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    fake_judge.otherwise = "refusal"

    async def play(question: str) -> art.Trajectory:
        async with model.rollout(question) as rollout:
            await model.openai_client().chat.completions.create(
                model=model.get_inference_name(),
                messages=[{"role": "user", "content": question}],
                max_tokens=4,
            )
        return rollout

    config = art.TrainConfig(steps=1, groups_per_step=4, rollouts_per_group=2)
    with pytest.raises(JudgeAnswerError, match=r"2 groups in a row.*it is a refusal"):
        await art.train(model, play, ["a", "b", "c"], config, reward=make_ruler(max_failures=2))
    assert await model.get_step() == 0


async def test_groups_that_the_judge_failed_on_are_left_out_of_a_step(
    model: art.TrainableModel[None],
    backend: art.LocalBackend,
    make_ruler: MakeRuler,
    fake_judge: FakeJudge,
) -> None:
    fake_judge.rule = by_length
    fake_judge.script = ["words"]

    async def play(question: str) -> art.Trajectory:
        async with model.rollout(question) as rollout:
            await model.openai_client().chat.completions.create(
                model=model.get_inference_name(),
                messages=[{"role": "user", "content": question}],
                max_tokens=8,
            )
        return rollout

    config = art.TrainConfig(steps=1, groups_per_step=3, rollouts_per_group=2)
    ruler = make_ruler(patience=Patience(repairs=0))
    await art.train(model, play, ["a", "b", "c"], config, reward=ruler)
    assert ruler.unscored == 1
    assert len(backend.run_directory(model).trajectories.read("train", 1)) == 2
