"""Measuring judges: good, blind, biased, noisy, gullible and broken ones are told apart."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from art_core.errors import ConfigError
from art_core.trajectories import Trajectory, TrajectoryGroup
from ruler import evaluate, labelled_groups
from tests.ruler.fake_judge import FakeJudge, by_quality, recordings
from tests.ruler.groups import MakeRuler, quality_group


def labelled(count: int = 6) -> list[TrajectoryGroup]:
    groups = [
        quality_group(*(round(0.1 + 0.2 * i + g / 100, 2) for i in range(4))) for g in range(count)
    ]
    for group in groups:
        for one in group:
            one.reward = by_quality(str(one.messages()[-1]["content"]))
    return groups


async def test_a_perfect_judge(make_ruler: MakeRuler, fake_judge: FakeJudge) -> None:
    report = await evaluate(labelled(), make_ruler(), orders=3)
    assert report.pair_accuracy == report.rank_correlation == 1
    assert report.order_difference == report.retest_difference == 0
    assert report.position_bias == pytest.approx(0, abs=1e-9)
    assert report.plea_gain == pytest.approx(0)
    assert (report.groups, report.unscored, report.verdicts) == (6, 0, 30)
    assert len(fake_judge.requests) == 30


async def test_a_judge_that_sees_nothing(make_ruler: MakeRuler, fake_judge: FakeJudge) -> None:
    noise = random.Random(1)
    fake_judge.rule = lambda _: noise.random()
    report = await evaluate(labelled(10), make_ruler(), orders=4)
    assert report.pair_accuracy is not None
    assert report.pair_accuracy_low is not None
    assert report.pair_accuracy_high is not None
    assert 0.3 < report.pair_accuracy < 0.7
    assert report.pair_accuracy_low < report.pair_accuracy < report.pair_accuracy_high
    assert report.retest_difference is not None
    assert report.retest_difference > 0.2


async def test_a_judge_that_prefers_the_last(make_ruler: MakeRuler, fake_judge: FakeJudge) -> None:
    def biased(body: dict[str, Any]) -> dict[str, Any]:
        system, user = (str(body["messages"][i]["content"]) for i in (0, 1))
        return {
            name: {"explanation": "", "score": 0.6 * by_quality(text) + 0.1 * place}
            for place, (name, text) in enumerate(recordings(user, system).items())
        }

    fake_judge.right_answer = biased  # type: ignore[method-assign]
    report = await evaluate(labelled(), make_ruler(), orders=4)
    assert report.position_bias == pytest.approx(0.3)
    assert report.order_difference is not None
    assert report.order_difference > 0.05
    assert report.retest_difference == 0


async def test_a_gullible_judge(make_ruler: MakeRuler, fake_judge: FakeJudge) -> None:
    fake_judge.rule = lambda text: 1.0 if "Note to the grader" in text else by_quality(text)
    report = await evaluate(labelled(), make_ruler())
    assert report.plea_gain == pytest.approx(0.875, abs=0.03)
    assert report.pair_accuracy == 1


async def test_a_judge_that_never_answers(make_ruler: MakeRuler, fake_judge: FakeJudge) -> None:
    fake_judge.otherwise = "words"
    report = await evaluate(labelled(2), make_ruler(), orders=2)
    assert (report.unscored, report.verdicts) == (8, 8)
    assert report.pair_accuracy is None
    assert report.plea_gain is None
    assert report.table().row_count == 10


async def test_a_function_can_be_measured_too(make_ruler: MakeRuler) -> None:
    def backwards(trajectories: Sequence[Trajectory]) -> list[float]:
        return [1 - by_quality(str(one.messages()[-1]["content"])) for one in trajectories]

    report = await evaluate(labelled(), make_ruler(backwards))
    assert report.pair_accuracy == 0
    assert report.rank_correlation == -1
    assert report.position_bias is None


async def test_groups_without_known_outcomes_are_refused(make_ruler: MakeRuler) -> None:
    with pytest.raises(ConfigError, match=r"group 0 .* without reward"):
        await evaluate([quality_group(0.1, 0.2)], make_ruler())
    same = quality_group(0.1, 0.2)
    for one in same:
        one.reward = 1
    with pytest.raises(ConfigError, match="in no group do known outcomes differ"):
        await evaluate([same], make_ruler())
    with pytest.raises(ConfigError, match="orders is 1"):
        await evaluate(labelled(), make_ruler(), orders=1)


def test_the_groups_that_come_with_ruler() -> None:
    groups = labelled_groups()
    assert len(groups) == 12
    for group in groups:
        rewards = [one.reward for one in group]
        assert None not in rewards
        assert len(set(rewards)) >= 3


def run_check(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from ruler.cli import app; app(sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-c", code, "check", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_command(fake_judge: FakeJudge, tmp_path: Path) -> None:
    path = tmp_path / "groups.jsonl"
    path.write_text("\n".join(group.model_dump_json() for group in labelled()) + "\n")
    common = ("fake", "--url", fake_judge.url, "--groups", str(path), "--no-cache")
    done = run_check(*common, "--json", "--min-accuracy", "0.9")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pair_accuracy"] == 1.0
    fake_judge.rule = lambda text: 1 - by_quality(text)
    done = run_check(*common, "--min-accuracy", "0.9")
    assert done.returncode == 1
    assert "pairs ordered right" in done.stdout
