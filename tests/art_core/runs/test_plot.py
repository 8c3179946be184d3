from __future__ import annotations

import builtins
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from art_core.errors import MissingExtraError
from art_core.runs import MetricsRow
from art_core.runs.plot import plot_rewards

ROWS = [
    *(
        MetricsRow(
            step=step,
            split="train",
            time=0.0,
            metrics={"reward": step / 10, "reward_spread": 0.1},
        )
        for step in range(1, 9)
    ),
    *(
        MetricsRow(step=step, split="val", time=0.0, metrics={"reward": step / 9})
        for step in (0, 4, 8)
    ),
    MetricsRow(step=9, split="train", time=0.0, metrics={"reward": float("nan")}),
    MetricsRow(step=9, split="train", time=0.0, metrics={"loss": 1.0}),
]


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], ROWS[8:9], []])
def test_a_picture_is_drawn_of_any_run(tmp_path: Path, rows: list[MetricsRow]) -> None:
    path = tmp_path / "curve.png"
    plot_rewards(rows, path, title="shop/bot")
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    assert len(content) > 10_000


def test_it_leaves_pyplot_alone(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from art_core.runs.plot import plot_rewards\n"
        "assert 'matplotlib' not in sys.modules\n"
        "plot_rewards([], Path(sys.argv[1]), title='t')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "x.png")], check=True, timeout=60)


def test_without_matplotlib_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actual = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return actual(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"needs matplotlib.*art-core\[train\]"):
        plot_rewards(ROWS, tmp_path / "curve.png", title="t")
