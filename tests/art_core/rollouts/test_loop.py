from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_backend import Call, ScriptedBackend

from art_core.config import TrainConfig
from art_core.errors import (
    ConfigError,
    RewardError,
    RunMismatchError,
    ScenarioError,
    StorageError,
    TooManyFailuresError,
    TrainingError,
)
from art_core.rollouts import StepReport, TrainableModel, TrainReport, TrainResult, train
from art_core.trajectories import Trajectory, TrajectoryGroup, TrajectoryStatus

Play = Callable[[Any], Awaitable[Trajectory]]
SCENARIOS = ["a", "b", "c", "d", "e"]
SMALL = TrainConfig(steps=2, groups_per_step=2, rollouts_per_group=2, eval_every=1)


def nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.fixture
def play(model: TrainableModel[Any]) -> Play:
    """Asks the model once; reward 1 for ``right``, 0 for ``wrong``, else none."""

    async def play(scenario: Any) -> Trajectory:
        async with model.rollout(scenario) as trajectory:
            answer = await model.openai_client().chat.completions.create(
                model="bot", messages=[{"role": "user", "content": str(scenario)}]
            )
        text = answer.choices[0].message.content
        trajectory.reward = {"right": 1.0, "wrong": 0.0}.get(text or "")
        trajectory.metrics["length"] = len(text or "")
        return trajectory

    return play


async def test_a_run_from_scenarios_to_a_better_policy(
    backend: ScriptedBackend,
    model: TrainableModel[Any],
    play: Play,
    capfd: pytest.CaptureFixture[str],
) -> None:
    config = TrainConfig(
        steps=5, groups_per_step=4, rollouts_per_group=4, eval_every=2, eval_rollouts=2, seed=1
    )
    report = await train(model, play, SCENARIOS, config, validation=["x", "y", "z"])
    assert report.steps == 5
    assert list(report.rewards("train")) == [1, 2, 3, 4, 5]
    assert list(report.rewards("val")) == [0, 2, 4, 5]
    assert report.before is not None
    assert report.after is not None
    assert report.after > report.before
    assert report.plot_path is not None
    assert report.plot_path.read_bytes().startswith(b"\x89PNG")

    run = backend.run_directory(model)
    groups = run.trajectories.read("train", 2)
    assert [len(group) for group in groups] == [4, 4, 4, 4]
    assert {str(group.metadata["scenario"]) for group in groups} <= set(SCENARIOS)
    assert all(t.histories and t.reward is not None for group in groups for t in group)
    train_row = next(r for r in run.metrics.read() if (r.split, r.step) == ("train", 5))
    assert {"reward", "reward_spread", "loss", "length", "seconds_gathering"} <= set(
        train_row.metrics
    )
    modes = [rollout.mode for rollout in backend.rollouts.values()]
    assert (modes.count("train"), modes.count("eval")) == (5 * 16, 4 * 6)

    captured = capfd.readouterr()
    assert captured.out == "", "stdout is the program's own"
    assert "held-out at step 0: reward" in captured.err
    assert "step 5/5  reward" in captured.err
    assert "held-out reward" in captured.err
    assert f"reward curve: {report.plot_path}\n" in captured.err


async def test_each_scenario_comes_once_before_any_comes_again(
    backend: ScriptedBackend, model: TrainableModel[Any], play: Play
) -> None:
    await train(model, play, SCENARIOS, SMALL.model_copy(update={"steps": 5}))
    run = backend.run_directory(model)
    played = [
        str(group.metadata["scenario"])
        for step in range(1, 6)
        for group in run.trajectories.read("train", step)
    ]
    assert sorted(played[:5]) == sorted(played[5:]) == SCENARIOS
    assert played[:5] != SCENARIOS, "in an order of the seed"


async def test_seeds_are_the_same_for_the_same_place_and_differ_otherwise(
    backend: ScriptedBackend, model: TrainableModel[Any], play: Play, tmp_path: Path
) -> None:
    await train(model, play, SCENARIOS, SMALL, validation=["x"])
    seeds = {
        (r.mode, r.tags["step"], r.tags["scenario"], r.tags["rollout"]): r.seed
        for r in backend.rollouts.values()
    }
    training = [seed for (mode, *_), seed in seeds.items() if mode == "train"]
    assert len(set(training)) == len(training) == 8
    held_out = {seed for (mode, *_), seed in seeds.items() if mode == "eval"}
    assert len(held_out) == 1, "each evaluation draws the same"
    assert held_out.isdisjoint(training)

    async with ScriptedBackend(tmp_path / "again") as other:
        twin = TrainableModel(name="twin", project="shop", base_model="tiny")
        await twin.register(other)

        async def play_twin(scenario: str) -> Trajectory:
            async with twin.rollout(scenario) as trajectory:
                await twin.openai_client().chat.completions.create(
                    model="twin", messages=[{"role": "user", "content": scenario}]
                )
            trajectory.reward = 0.0
            return trajectory

        await train(twin, play_twin, SCENARIOS, SMALL, validation=["x"])
        assert sorted(r.seed or 0 for r in other.rollouts.values()) == sorted(
            r.seed or 0 for r in backend.rollouts.values()
        )


async def test_a_run_can_be_made_longer_and_is_over_when_it_is(
    backend: ScriptedBackend, model: TrainableModel[Any], play: Play
) -> None:
    await train(model, play, SCENARIOS, SMALL, validation=["x"])
    played = len(backend.rollouts)
    report = await train(model, play, SCENARIOS, SMALL, validation=["x"])
    assert report.steps == 2
    assert len(backend.rollouts) == played, "there was nothing to do"
    longer = SMALL.model_copy(update={"steps": 3, "concurrency": 1})
    report = await train(model, play, SCENARIOS, longer, validation=["x"])
    assert list(report.rewards("val")) == [0, 1, 2, 3]


async def test_other_settings_are_refused(model: TrainableModel[Any], play: Play) -> None:
    await train(model, play, SCENARIOS, SMALL)
    with pytest.raises(RunMismatchError, match=r"seed \(0 before, 5 now\)"):
        await train(model, play, SCENARIOS, SMALL.model_copy(update={"seed": 5}))


async def test_a_scorer_scores_whole_groups_and_may_leave_one_out(
    backend: ScriptedBackend,
    model: TrainableModel[Any],
    play: Play,
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend.script = lambda call: f"hm, {call.last}"

    async def scorer(group: TrajectoryGroup) -> TrajectoryGroup | None:
        if group.metadata["scenario"] == "a":
            return None
        scored = [t.model_copy(update={"reward": float(n)}) for n, t in enumerate(group)]
        return TrajectoryGroup(scored, metadata={"judge": "me"})

    config = SMALL.model_copy(update={"groups_per_step": 5, "steps": 1})
    report = await train(model, play, SCENARIOS, config, reward=scorer)
    assert report.rewards("train") == {1: 0.5}
    groups = backend.run_directory(model).trajectories.read("train", 1)
    assert sorted(str(group.metadata["scenario"]) for group in groups) == ["b", "c", "d", "e"]
    assert {str(group.metadata["judge"]) for group in groups} == {"me"}
    assert "was left unscored" in caplog.text


async def test_a_missing_reward_stops_the_run_and_names_the_rollout(
    backend: ScriptedBackend, model: TrainableModel[Any], play: Play
) -> None:
    backend.script = lambda call: "?" if call.seed is not None else "never"
    with pytest.raises(RewardError, match=r"rollout [0-9a-f]{32} has no reward.*reward="):
        await train(model, play, SCENARIOS, SMALL)
    assert await model.get_step() == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0.5", [1.0], object()])
async def test_a_reward_that_is_not_a_finite_number_is_a_failure_at_its_line(
    model: TrainableModel[Any], play: Play, value: Any
) -> None:
    async def badly(scenario: str) -> Trajectory:
        trajectory = await play(scenario)
        trajectory.reward = value
        return trajectory

    with pytest.raises(TooManyFailuresError, match="4 x RewardError") as caught:
        await train(model, badly, SCENARIOS, SMALL.model_copy(update={"max_exceptions": 1.0}))
    assert isinstance(caught.value.__cause__, RewardError)


async def test_a_bool_is_a_reward(model: TrainableModel[Any], play: Play) -> None:
    async def good(scenario: str) -> Trajectory:
        trajectory = await play(scenario)
        trajectory.reward = True
        return trajectory

    report = await train(model, good, SCENARIOS, SMALL)
    assert report.rewards("train") == {1: 1.0, 2: 1.0}


@pytest.mark.parametrize(
    ("scenarios", "problem"),
    [
        ([], "scenarios is empty"),
        ("abc", "scenarios is 'abc' \\(str\\)"),
        ({"a": 1}, "scenarios is {'a': 1}"),
        (3, "scenarios is 3"),
        (["a", None], r"scenarios\[1\] is None"),
        (["a", object()], r"scenarios\[1\] is <object .*can't be written as JSON"),
        ([nested(5000)], "can't be written as JSON: .*recurs"),
    ],
)
async def test_scenarios_of_a_wrong_shape_are_refused(
    backend: ScriptedBackend,
    model: TrainableModel[Any],
    play: Play,
    scenarios: Any,
    problem: str,
) -> None:
    with pytest.raises(ScenarioError, match=problem):
        await train(model, play, scenarios, SMALL)
    with pytest.raises(ScenarioError, match=problem.replace("scenarios", "validation")):
        await train(model, play, SCENARIOS, SMALL, validation=scenarios)
    assert backend.rollouts == {}


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rollouts_per_group is 1: .*at least 2"):
        TrainConfig(rollouts_per_group=1)


async def test_groups_without_spread_are_counted_and_said(
    backend: ScriptedBackend,
    model: TrainableModel[Any],
    play: Play,
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend.script = lambda _: "wrong"
    await train(model, play, SCENARIOS, SMALL)
    (first, _) = backend.run_directory(model).metrics.read()
    assert first.metrics["groups_without_spread"] == 1.0
    assert "step 1: the rewards differ in none of its groups" in caplog.text


async def test_extra_groups_replace_those_without_spread(
    backend: ScriptedBackend, model: TrainableModel[Any], play: Play
) -> None:
    """Only the scenario ``e`` has different rewards."""
    turns = iter(["right", "wrong"] * 100)
    backend.script = lambda call: next(turns) if call.last == "e" else "wrong"
    config = TrainConfig(steps=1, groups_per_step=2, rollouts_per_group=2, extra_groups=10)
    await train(model, play, SCENARIOS, config)
    groups = backend.run_directory(model).trajectories.read("train", 1)
    spread = [len({t.reward for t in group}) > 1 for group in groups]
    assert sum(spread) == 2 or len(groups) == 12
    assert len(groups) > 2


async def test_failures_within_the_allowed_share_cost_only_themselves(
    backend: ScriptedBackend,
    model: TrainableModel[Any],
    play: Play,
    caplog: pytest.LogCaptureFixture,
) -> None:
    count = 0

    async def sometimes(scenario: str) -> Trajectory:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyError("no such tool")
        trajectory = await play(scenario)
        if count == 3:
            trajectory.status = TrajectoryStatus.FAILED
            trajectory.error = "the adapter caught it"
        return trajectory

    config = TrainConfig(
        steps=1, groups_per_step=2, rollouts_per_group=4, max_exceptions=2, concurrency=1
    )
    report = await train(model, sometimes, SCENARIOS, config)
    (row,) = report.rows
    assert (row.metrics["trajectories"], row.metrics["rollouts_failed"]) == (6, 2)
    assert 'raise KeyError("no such tool")' in caplog.text
    assert "the adapter caught it" in caplog.text


async def test_a_run_where_everything_fails_stops_with_the_reason(
    model: TrainableModel[Any], backend: ScriptedBackend
) -> None:
    async def broken(_: str) -> Trajectory:
        raise ConnectionError("the tool server is down")

    with pytest.raises(TooManyFailuresError, match="the tool server is down"):
        await train(model, broken, SCENARIOS, SMALL.model_copy(update={"max_exceptions": 1.0}))
    assert await model.get_step() == 0


async def test_a_step_that_keeps_no_whole_group_stops_with_the_reason(
    model: TrainableModel[Any], play: Play
) -> None:
    count = 0

    async def every_other(scenario: str) -> Trajectory:
        nonlocal count
        count += 1
        if count % 2:
            raise ConnectionError("flaky")
        return await play(scenario)

    config = SMALL.model_copy(update={"max_exceptions": 1.0, "concurrency": 1})
    with pytest.raises(TooManyFailuresError, match="step 1 has no group with two scored"):
        await train(model, every_other, SCENARIOS, config)


async def test_functions_that_play_wrongly_are_told_how(
    model: TrainableModel[Any], play: Play
) -> None:
    async def returns_nothing(scenario: str) -> Any:
        await play(scenario)

    def not_async(_: str) -> Any:
        return Trajectory(reward=1.0)

    async def never_calls(scenario: str) -> Trajectory:
        async with model.rollout(scenario) as trajectory:
            trajectory.reward = 1.0
        return trajectory

    for wrong, reason in (
        (returns_nothing, r"returned None \(NoneType\)\. It must be 'async def' and return the"),
        (not_async, "a trajectory without rollout can't be used"),
        (never_calls, "rollout [0-9a-f]{32} can't be used: no model call reached this rollout"),
    ):
        with pytest.raises(TooManyFailuresError, match=reason):
            await train(model, wrong, SCENARIOS, SMALL)


async def test_a_rollout_that_hangs_is_stopped(
    model: TrainableModel[Any], play: Play, backend: ScriptedBackend
) -> None:
    async def hangs(scenario: str) -> Trajectory:
        async with model.rollout(scenario):
            await asyncio.Event().wait()
        raise AssertionError

    config = SMALL.model_copy(update={"rollout_timeout": 0.1})
    with pytest.raises(TooManyFailuresError, match=r"took more than 0\.1 s; it was waiting at"):
        await train(model, hangs, SCENARIOS, config)
    assert all(rollout.closed for rollout in backend.rollouts.values())


async def test_a_failed_rollout_is_played_again_with_another_seed(
    backend: ScriptedBackend, model: TrainableModel[Any], play: Play
) -> None:
    failed: set[str] = set()

    async def flaky(scenario: str) -> Trajectory:
        trajectory = await play(scenario)
        if scenario not in failed:
            failed.add(scenario)
            raise ConnectionError
        return trajectory

    config = SMALL.model_copy(update={"steps": 1, "retries": 1, "max_exceptions": 0})
    report = await train(model, flaky, SCENARIOS, config)
    assert report.steps == 1
    seeds = [rollout.seed for rollout in backend.rollouts.values()]
    assert len(seeds) == 6
    assert len(set(seeds)) == 6


async def test_cancelling_keeps_finished_groups_for_the_next_start(
    backend: ScriptedBackend, model: TrainableModel[Any], play: Play
) -> None:
    release = asyncio.Event()
    count = 0

    async def slow_at_the_end(scenario: str) -> Trajectory:
        nonlocal count
        count += 1
        if count > 2:
            await release.wait()
        return await play(scenario)

    config = SMALL.model_copy(update={"steps": 1, "concurrency": 2})
    task = asyncio.create_task(train(model, slow_at_the_end, SCENARIOS, config))
    run = backend.run_directory(model)
    while not run.journal.read(1):  # noqa: ASYNC110  (the disk tells nobody)
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (kept,) = run.journal.read(1).values()
    release.set()
    await train(model, slow_at_the_end, SCENARIOS, config)
    trained = run.trajectories.read("train", 1)
    assert kept in trained
    assert [group.id for group in trained] == [f"{run.identity.run_id}-1-{n}" for n in range(2)]


async def test_a_journal_of_other_scenarios_is_not_used(
    backend: ScriptedBackend, model: TrainableModel[Any], play: Play
) -> None:
    run = backend.run_directory(model)
    stale = TrajectoryGroup(
        [Trajectory(reward=1.0), Trajectory(reward=0.0)],
        id=f"{run.identity.run_id}-1-0",
        metadata={"scenario": "something else"},
    )
    run.journal.add(1, stale)
    await train(model, play, SCENARIOS, SMALL.model_copy(update={"steps": 1}))
    assert stale not in run.trajectories.read("train", 1)


async def test_checkpoints_are_kept_as_configured(
    backend: ScriptedBackend, model: TrainableModel[Any], play: Play
) -> None:
    def best_at_two(call: Call) -> str:
        return "right" if call.step == 2 else "wrong"

    backend.script = best_at_two
    config = SMALL.model_copy(update={"steps": 5, "keep_checkpoints": 1})
    await train(model, play, SCENARIOS, config, validation=["x"])
    run = backend.run_directory(model)
    assert [checkpoint.step for checkpoint in run.checkpoints.all()] == [2, 5]
    await model.delete_checkpoints("val/no-such-metric")
    assert [checkpoint.step for checkpoint in run.checkpoints.all()] == [5]


async def test_a_run_directory_deleted_in_the_middle_is_named(
    backend: ScriptedBackend, model: TrainableModel[Any], play: Play
) -> None:
    folder = backend.run_directory(model).path

    async def last_play(scenario: Any) -> Trajectory:
        shutil.rmtree(folder, ignore_errors=True)
        return await play(scenario)

    with pytest.raises((StorageError, OSError), match=re.escape(folder.name)):
        await train(model, last_play, SCENARIOS, SMALL, validation=["x"])


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_on_step_is_told_of_each_step(
    model: TrainableModel[Any], play: Play, asynchronous: bool
) -> None:
    told: list[tuple[int, int, bool]] = []

    def on_step(report: StepReport) -> None:
        told.append((report.step, len(report.groups), "reward" in report.metrics))

    async def on_step_async(report: StepReport) -> None:
        await asyncio.sleep(0)
        on_step(report)

    await train(model, play, SCENARIOS, SMALL, on_step=on_step_async if asynchronous else on_step)
    assert told == [(1, 2, True), (2, 2, True)]


async def test_a_backend_that_loses_count_stops_the_run(
    backend: ScriptedBackend,
    model: TrainableModel[Any],
    play: Play,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def wrong(*_: object) -> TrainResult:
        return TrainResult(step=7)

    monkeypatch.setattr(backend, "train", wrong)
    with pytest.raises(TrainingError, match="the backend is at step 7 after training step 1"):
        await train(model, play, SCENARIOS, SMALL)


async def test_an_adapters_agent_is_played(
    backend: ScriptedBackend, model: TrainableModel[Any], play: Play
) -> None:
    class Wrapped:
        async def play(self, scenario: Any, /) -> Trajectory:
            return await play(scenario)

    report = await train(model, Wrapped(), SCENARIOS, SMALL)
    assert report.steps == 2


async def test_without_matplotlib_a_run_has_no_picture_and_says_so(
    model: TrainableModel[Any],
    play: Play,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    report = await train(model, play, SCENARIOS, SMALL)
    assert report.plot_path is None
    assert any(
        record.levelno == logging.WARNING and "no reward curve is drawn" in record.getMessage()
        for record in caplog.records
    )


def test_it_runs_in_a_thread_that_is_not_the_main_one(tmp_path: Path) -> None:
    """Where signals can't be handled."""

    async def run() -> TrainReport:
        async with ScriptedBackend(tmp_path) as backend:
            model = TrainableModel(name="bot", project="shop", base_model="tiny")
            await model.register(backend)

            async def play(scenario: str) -> Trajectory:
                async with model.rollout(scenario) as trajectory:
                    await model.openai_client().chat.completions.create(
                        model="bot", messages=[{"role": "user", "content": scenario}]
                    )
                trajectory.reward = 0.0
                return trajectory

            return await train(model, play, SCENARIOS, SMALL)

    report = asyncio.run(asyncio.to_thread(asyncio.run, run()))
    assert report.steps == 2
