"""The examples run: one step each, with the real base model."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[3] / "examples"
EXAMPLES = sorted(FOLDER.glob("langgraph_*.py"))


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
@pytest.mark.training
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
async def test_an_example_trains(path: Path, tmp_path: Path) -> None:
    report = await load(path).main(steps=1, held_out=4, root=str(tmp_path))
    assert report.steps == 1
    assert report.before is not None
    assert report.after is not None


def test_the_tutorial_has_one_line_added() -> None:
    source = (FOLDER / "langgraph_tutorial.py").read_text()
    tutorial = source.split(f"# {'-' * 88}\n")[1]
    added = [line for line in tutorial.splitlines() if "rollout" in line or "model)" in line]
    assert added == ["@rollout(model)  # <---- the line that was added"]
