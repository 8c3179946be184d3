from __future__ import annotations

from pathlib import Path

import pytest

from art_core.errors import ConfigError
from art_core.runs import RunDirectory, check_name


@pytest.mark.parametrize("name", ["a", "Qwen3-4B_v1.2", "x" * 128])
def test_ordinary_names_pass(name: str) -> None:
    assert check_name("name", name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a\\b", ".hidden", "-x", "a b", "a\n", "x" * 129, "ä", 3]
)
def test_names_that_could_lead_elsewhere_are_refused(name: object) -> None:
    with pytest.raises(ConfigError, match=r"^name is "):
        check_name("name", name)


@pytest.mark.parametrize("field", ["project", "model"])
def test_a_run_directory_stays_below_its_root(tmp_path: Path, field: str) -> None:
    names = {"project": "shop", "model": "bot", field: "../../elsewhere"}
    with pytest.raises(ConfigError, match="elsewhere"):
        RunDirectory.open(tmp_path / "root", project=names["project"], model=names["model"])
    assert not (tmp_path / "elsewhere").exists()
