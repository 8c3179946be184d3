from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.harness import Result, Runs
from tests.faults.training import STEPS


@pytest.fixture(scope="session")
def runs(tiny_model_folder: Path) -> Runs:
    return Runs(tiny_model_folder)


@pytest.fixture(scope="session")
def undisturbed(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The run that no fault was put into."""
    result = runs.finish(tmp_path_factory.mktemp("undisturbed") / "runs")
    assert result.steps == result.updates == STEPS
    assert list(result.rewards["val"]) == [0, 2, 4]
    assert len({text for texts in result.texts.values() for text in texts}) > STEPS
    assert result.leftovers == []
    return result
