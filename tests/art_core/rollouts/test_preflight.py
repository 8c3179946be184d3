"""`check`: what one group shows before any training."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from art_core import check
from art_core.config import TrainConfig
from art_core.errors import ScenarioError
from art_core.rollouts import TrainableModel
from art_core.rollouts.preflight_report import CallCheck, CheckReport, RolloutCheck
from art_core.trajectories import Trajectory

if TYPE_CHECKING:
    from scripted_backend import Call, ScriptedBackend

CONFIG = TrainConfig(rollouts_per_group=4)
QUESTION = {"question": "?"}


def alternating() -> Any:
    """Says ``right`` and ``wrong`` in turn."""
    said = iter(["right", "wrong"] * 100)

    def script(call: Call) -> str:
        return next(said)

    return script


async def ask(model: TrainableModel[Any], trajectory: Trajectory) -> str:
    client = model.openai_client().with_options(
        base_url=trajectory.base_url, api_key=trajectory.api_key, max_retries=0
    )
    response = await client.chat.completions.create(
        model="bot", messages=[{"role": "user", "content": "?"}]
    )
    return response.choices[0].message.content or ""


def player_of(model: TrainableModel[Any]) -> Any:
    async def play(scenario: object) -> Trajectory:
        async with model.rollout(scenario) as trajectory:
            said = await ask(model, trajectory)
        trajectory.reward = said == "right"
        return trajectory

    return play


class TestCheck:
    async def test_shows_calls_tokens_and_rewards(
        self, backend: ScriptedBackend, model: TrainableModel[Any]
    ) -> None:
        backend.script = alternating()
        report = await check(model, player_of(model), [QUESTION, {"question": "other"}], CONFIG)
        assert report.scenario == QUESTION
        assert report.ready, report.advice
        assert len(report.rollouts) == 4
        assert sorted(report.rewards) == [0, 0, 1, 1]
        assert report.spread == 0.5
        assert report.pass_at_k == {1: 0.5, 2: pytest.approx(5 / 6), 4: 1.0}
        for rollout in report.rollouts:
            (call,) = rollout.calls
            assert call.sampled_tokens == len("right</>")
            assert rollout.tokens == call.prompt_tokens + call.sampled_tokens
            assert rollout.redirected == 0

    async def test_trains_nothing(
        self, backend: ScriptedBackend, model: TrainableModel[Any]
    ) -> None:
        await check(model, player_of(model), [QUESTION], CONFIG)
        assert await model.get_step() == 0
        assert backend.run_directory(model).metrics.read() == []

    async def test_tells_redirected_calls_from_explicit_ones(
        self, backend: ScriptedBackend, model: TrainableModel[Any]
    ) -> None:
        async def play(scenario: object) -> Trajectory:
            async with model.rollout(scenario) as trajectory:
                await ask(model, trajectory)
                async with httpx.AsyncClient() as client:
                    await client.post(
                        "https://api.openai.com/v1/chat/completions",
                        json={"model": "gpt", "messages": [{"role": "user", "content": "?"}]},
                    )
            trajectory.reward = 1.0
            return trajectory

        report = await check(model, play, [QUESTION], CONFIG)
        assert [len(r.calls) for r in report.rollouts] == [2] * 4
        assert [r.redirected for r in report.rollouts] == [1] * 4

    async def test_names_hosts_whose_calls_werent_captured(
        self, backend: ScriptedBackend, model: TrainableModel[Any]
    ) -> None:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, json={}))

        async def play(scenario: object) -> Trajectory:
            async with model.rollout(scenario) as trajectory:
                await ask(model, trajectory)
                async with httpx.AsyncClient(transport=transport) as client:
                    await client.post(
                        "https://llm.example/v1/chat/completions", json={"model": "m"}
                    )
            trajectory.reward = 1.0
            return trajectory

        report = await check(model, play, [QUESTION], CONFIG)
        assert "4 model calls went to llm.example and weren't recorded" in report.advice[0]
        assert "CaptureConfig(hosts=" in report.advice[0]

    async def test_reports_rollouts_that_fail(
        self, backend: ScriptedBackend, model: TrainableModel[Any]
    ) -> None:
        backend.script = alternating()

        async def play(scenario: object) -> Trajectory:
            async with model.rollout(scenario) as trajectory:
                trajectory.reward = await ask(model, trajectory) == "right"
            if not trajectory.reward:
                raise LookupError("nothing there")
            return trajectory

        report = await check(model, play, [QUESTION], CONFIG)
        assert "2 of 4 rollouts failed: LookupError: nothing there" in report.advice
        assert all(len(rollout.calls) == 1 for rollout in report.rollouts), "still shown"

    async def test_reports_a_rollout_that_hangs(self, model: TrainableModel[Any]) -> None:
        async def play(scenario: object) -> Trajectory:
            async with model.rollout(scenario) as trajectory:
                await asyncio.sleep(60)
            return trajectory

        config = TrainConfig(rollouts_per_group=2, rollout_timeout=0.05)
        report = await check(model, play, [QUESTION], config)
        assert "took more than 0.05 s" in report.advice[0]

    async def test_reports_an_agent_that_never_calls_the_model(
        self, model: TrainableModel[Any]
    ) -> None:
        async def play(scenario: object) -> Trajectory:
            async with model.rollout(scenario) as trajectory:
                pass
            return trajectory

        report = await check(model, play, [QUESTION], CONFIG)
        assert not report.ready
        assert "no model call reached this rollout" in report.advice[0]

    async def test_reports_rewards_that_are_missing(self, model: TrainableModel[Any]) -> None:
        async def play(scenario: object) -> Trajectory:
            async with model.rollout(scenario) as trajectory:
                await ask(model, trajectory)
            return trajectory

        report = await check(model, play, [QUESTION], CONFIG)
        assert "4 of 4 rollouts have no reward" in report.advice[0]

    async def test_scores_with_a_scorer(
        self, backend: ScriptedBackend, model: TrainableModel[Any]
    ) -> None:
        async def play(scenario: object) -> Trajectory:
            async with model.rollout(scenario) as trajectory:
                await ask(model, trajectory)
            return trajectory

        async def scorer(group: Any) -> Any:
            for number, trajectory in enumerate(group.trajectories):
                trajectory.reward = number / 4
            return group

        report = await check(model, play, [QUESTION], CONFIG, reward=scorer)
        assert report.rewards == [0, 0.25, 0.5, 0.75]

        async def refusing(group: Any) -> Any:
            return None

        report = await check(model, play, [QUESTION], CONFIG, reward=refusing)
        assert "left the group unscored" in report.advice[0]

    async def test_a_backend_that_cant_measure_gives_no_estimate(
        self, model: TrainableModel[Any]
    ) -> None:
        report = await check(model, player_of(model), [QUESTION], CONFIG)
        assert report.step_cost is None
        assert report.step_seconds is None

    async def test_no_scenarios(self, model: TrainableModel[Any]) -> None:
        with pytest.raises(ScenarioError, match="scenarios is empty"):
            await check(model, player_of(model), [])


def report_of(*rewards: float | None, status: str = "completed") -> CheckReport:
    return CheckReport(
        scenario="?",
        rollouts=[
            RolloutCheck(
                rollout_ids=[str(number)],
                calls=[CallCheck(status=status, prompt_tokens=5, sampled_tokens=3)],
                redirected=0,
                passed={},
                histories=1,
                tokens=8,
                reward=reward,
                error=None,
            )
            for number, reward in enumerate(rewards)
        ],
        solved=1.0,
        scoring_problem=None,
        seconds=1.0,
        groups_per_step=8,
        step_cost=None,
    )


class TestAdvice:
    def test_when_the_base_never_succeeds(self) -> None:
        report = report_of(0, 0, 0)
        assert report.pass_at_k == {1: 0, 2: 0}
        assert "every rollout got 0, so there is nothing to compare" in report.advice[0]
        assert "partial credit" in report.advice[0]

    def test_when_it_always_does(self) -> None:
        assert "can do this one already" in report_of(1, 1).advice[0]

    def test_when_answers_are_cut_off(self) -> None:
        assert "cut off by max_tokens" in report_of(0, 1, status="truncated").advice[0]

    def test_when_calls_are_lost(self) -> None:
        assert "never trained on" in report_of(0, 1, status="abandoned").advice[0]

    def test_none_when_all_is_well(self) -> None:
        assert report_of(0, 1).ready


def test_pass_at_k_has_no_bias() -> None:
    """Against all ways to draw k of the n rollouts."""
    from itertools import combinations

    rewards = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    for k, value in report_of(*rewards).pass_at_k.items():
        draws = list(combinations(rewards, k))
        assert value == pytest.approx(sum(max(draw) for draw in draws) / len(draws))
