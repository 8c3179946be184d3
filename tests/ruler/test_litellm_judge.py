"""Judges by LiteLLM's model strings, over real HTTP; and OpenPipe ART's two functions."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from art_core.trajectories import TrajectoryGroup
from ruler import JudgeAnswerError, JudgeSetupError, LiteLLMModel, ruler, ruler_score_group
from tests.ruler.fake_judge import FakeJudge
from tests.ruler.groups import MakeRuler, quality_group, rewards, trajectory

# litellm's import warns about its own types.
pytestmark = pytest.mark.filterwarnings("ignore:Items? .* on TypedDict class:UserWarning")


@pytest.fixture(autouse=True)
def offline_litellm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.setenv("ART_CACHE", str(tmp_path))
    importlib.import_module("litellm")  # takes longer than these tests are patient


def params(judge: FakeJudge) -> dict[str, Any]:
    return {"api_base": judge.url, "api_key": "k"}


async def test_a_model_string_judges(make_ruler: MakeRuler, fake_judge: FakeJudge) -> None:
    model = LiteLLMModel(model="openai/gpt-4.1", params=params(fake_judge))
    scored = await make_ruler(model).score(quality_group(0.2, 0.8))
    assert rewards(scored) == [0.2, 0.8]
    assert scored.metrics["ruler/cost_usd"] == pytest.approx(100 * 2e-6 + 10 * 8e-6)
    sent = fake_judge.requests[-1]
    assert sent["model"] == "gpt-4.1"
    assert sent["response_format"]["type"] == "json_schema"
    assert sent["response_format"]["json_schema"]["strict"] is True


async def test_a_model_without_a_price_is_counted_apart(
    make_ruler: MakeRuler, fake_judge: FakeJudge
) -> None:
    model = LiteLLMModel(model="hosted_vllm/mine", params=params(fake_judge))
    scored = await make_ruler(model).score(quality_group(0.2, 0.8))
    assert scored.metrics["ruler/unpriced_calls"] == 1
    assert scored.metrics["ruler/cost_usd"] == 0
    assert "response_format" not in fake_judge.requests[-1]


@pytest.mark.parametrize("behaviour", ["429", "500", "503", "hang up"])
async def test_passing_failures_are_retried_by_us_alone(
    make_ruler: MakeRuler, fake_judge: FakeJudge, behaviour: str
) -> None:
    fake_judge.script = [behaviour]
    model = LiteLLMModel(model="openai/gpt-4.1", params=params(fake_judge))
    scored = await make_ruler(model).score(quality_group(0.2, 0.8))
    assert rewards(scored) == [0.2, 0.8]
    assert scored.metrics["ruler/retries"] == 1
    assert len(fake_judge.requests) == 2


@pytest.mark.parametrize("behaviour", ["401", "404", "quota"])
async def test_a_wrong_key_or_model_stops(
    make_ruler: MakeRuler, fake_judge: FakeJudge, behaviour: str
) -> None:
    fake_judge.otherwise = behaviour
    model = LiteLLMModel(model="openai/gpt-4.1", params=params(fake_judge))
    with pytest.raises(JudgeSetupError, match=r"openai/gpt-4\.1"):
        await make_ruler(model).score(quality_group(0.2, 0.8))


async def test_a_model_string_nobody_knows_stops(make_ruler: MakeRuler) -> None:
    with pytest.raises(JudgeSetupError, match="no-such-provider"):
        await make_ruler("no-such-provider-model").score(quality_group(0.2, 0.8))


def test_the_key_is_not_part_of_the_identity(fake_judge: FakeJudge) -> None:
    one, other = (
        LiteLLMModel(model="m", params={"api_key": key, "temperature": 0}) for key in "ab"
    )
    assert one.identity == other.identity
    assert "api_key" not in str(one.identity)


async def test_openpipes_functions(fake_judge: FakeJudge) -> None:
    group = quality_group(0.2, 0.8)
    group.trajectories[0].reward = 0.5
    scored = await ruler_score_group(group, "openai/gpt-4.1", params(fake_judge))
    assert isinstance(scored, TrajectoryGroup)
    assert rewards(scored) == [0.2, 0.8]
    first = scored.trajectories[0]
    assert first.metrics["independent_reward"] == 0.5
    assert first.metrics["ruler_score"] == 0.2
    assert first.logs == ["RULER explanation: by rule 0.2"]
    assert group.trajectories[0].logs == []

    messages = [trajectory(f"quality={q}").messages() for q in (0.4, 0.3, 0.4)]
    scores = await ruler(messages, "openai/gpt-4.1", params(fake_judge), rubric="r")
    assert [(one.trajectory_id, one.score) for one in scores] == [
        ("1", 0.4),
        ("2", 0.3),
        ("3", 0.4),
    ]
    assert await ruler([]) == []


async def test_openpipes_functions_on_a_failing_judge(fake_judge: FakeJudge) -> None:
    fake_judge.otherwise = "words"
    group, model = quality_group(0.2, 0.8), "openai/gpt-4.1"
    with pytest.raises(JudgeAnswerError):
        await ruler_score_group(group, model, params(fake_judge))
    assert (
        await ruler_score_group(group, model, params(fake_judge), swallow_exceptions=True) is None
    )


def test_importing_ruler_loads_no_client() -> None:
    code = "import ruler, sys; print({'litellm', 'openai', 'torch', 'fastapi'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
