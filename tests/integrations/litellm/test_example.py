"""The example: one step of it, with the real base model."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "litellm_app.py"


def load_example() -> Any:
    spec = importlib.util.spec_from_file_location("litellm_app", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        ("billing", 1),
        ("Billing.", 1),
        ("The billing team", 0.5),
        ("billing or shipping", 0),
        ("shipping", 0),
        ("", 0),
    ],
)
def test_the_grade(reply: str, reward: float) -> None:
    assert load_example().grade(reply, "billing") == reward


@pytest.mark.long
@pytest.mark.training
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_the_app_learns_to_sort(tmp_path: Path) -> None:
    report = await load_example().main(str(tmp_path), steps=12, seed=0)
    held_out = [row.metrics["right"] for row in report.rows if row.split == "val"]
    assert held_out[-1] > held_out[0]
