"""Fixtures of the ruler tests: a fake judge, and rulers that ask it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from ruler import OpenAIServer, Patience, Ruler
from tests.ruler.fake_judge import FakeJudge, running_judge

QUICK = Patience(first_wait=0.01, longest_wait=0.2, timeout=60)


@pytest.fixture
def fake_judge() -> Generator[FakeJudge]:
    with running_judge() as judge:
        yield judge


@pytest.fixture
def judge_model(fake_judge: FakeJudge) -> OpenAIServer:
    return OpenAIServer(base_url=fake_judge.url, model="fake")


@pytest.fixture
def make_ruler(judge_model: OpenAIServer, tmp_path: Path) -> Callable[..., Ruler]:
    def make(judge: Any = judge_model, **options: Any) -> Ruler:
        defaults: dict[str, Any] = {"cache": tmp_path / "answers.sqlite", "patience": QUICK}
        return Ruler(judge, **(defaults | options))

    return make
