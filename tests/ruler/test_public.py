"""What downstream code may rely on."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import ruler

PUBLIC = {
    "Absolute", "AutoReport", "BaseModelJudge", "Budget", "BudgetSpentError", "Criterion",
    "DEFAULT_RUBRIC", "FunctionJudge", "Judge", "JudgeAnswerError", "JudgeError", "JudgeModel",
    "JudgeReport", "JudgeSetupError", "JudgeUnavailableError", "Judgement", "LiteLLMModel",
    "OpenAIServer", "Origin", "Pairwise", "Panel", "Patience", "Price", "Relative", "Reply",
    "RetryLater", "Ruler", "Scenario", "Sifted", "Tally", "TrajectoryScore", "Verdict", "WinRate",
    "autorl", "evaluate", "labelled_groups", "load_scenarios", "make_scenarios", "ruler",
    "ruler_score_group", "score", "sift_scenarios", "split_scenarios", "weighted", "win_rate",
}  # fmt: skip


def test_the_public_names_are_exactly_these() -> None:
    assert set(ruler.__all__) == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_is_documented_and_no_module(name: str) -> None:
    value = getattr(ruler, name)
    assert not inspect.ismodule(value)
    assert name == "DEFAULT_RUBRIC" or inspect.getdoc(value)


OPENPIPE: dict[str, dict[str, Any]] = {
    "ruler": {
        "message_lists": inspect.Parameter.empty,
        "judge_model": "openai/o3",
        "extra_litellm_params": None,
        "rubric": ruler.DEFAULT_RUBRIC,
        "debug": False,
    },
    "ruler_score_group": {
        "group": inspect.Parameter.empty,
        "judge_model": "openai/o3",
        "extra_litellm_params": None,
        "rubric": ruler.DEFAULT_RUBRIC,
        "swallow_exceptions": False,
        "debug": False,
    },
}


@pytest.mark.parametrize("name", OPENPIPE)
def test_openpipe_arts_signatures(name: str) -> None:
    parameters = inspect.signature(getattr(ruler, name)).parameters
    assert {key: one.default for key, one in parameters.items()} == OPENPIPE[name]
    keyword_only = {"debug", "swallow_exceptions"}
    for key, one in parameters.items():
        assert (one.kind is inspect.Parameter.KEYWORD_ONLY) == (key in keyword_only)
