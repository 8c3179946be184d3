"""``art runs`` on a real run directory."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Protocol

import pytest
from rich.console import Console
from typer.testing import CliRunner

from art_core.cli.curve import HELD_OUT, TRAINING, draw_curve
from art_core.cli.main import build_app
from art_core.cli.transcript import token_table
from art_core.demo.report import DemoReport
from art_core.runs import open_run_readonly
from art_core.trajectories import History

RUN = "demo/python-seed0"


class Art(Protocol):
    def __call__(
        self, *arguments: str, cwd: Path = ..., **environment: str
    ) -> subprocess.CompletedProcess[str]: ...


def invoke(root: Path, *words: str) -> str:
    command = [*words, "--root", str(root)]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(build_app(command), command)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


class TestList:
    def test_none(self, tmp_path: Path) -> None:
        assert "No runs under" in invoke(tmp_path, "runs")
        assert json.loads(invoke(tmp_path, "runs", "--json")) == {"runs": [], "damaged": []}

    def test_names_each_run_with_its_rewards(
        self, demo_report: DemoReport, demo_root: Path
    ) -> None:
        line = next(line for line in invoke(demo_root, "runs").splitlines() if RUN in line)
        assert "→" in line
        assert " 2 " in line

    def test_json(self, demo_report: DemoReport, demo_root: Path) -> None:
        (run,) = json.loads(invoke(demo_root, "runs", "--json"))["runs"]
        assert (run["project"], run["model"]) == ("demo", "python-seed0")
        assert run["step"] == 2
        assert run["active"] is False
        assert run["held_out_reward"].keys() == {"first", "last", "best"}

    def test_root_from_the_environment(
        self, demo_report: DemoReport, demo_root: Path, art: Art
    ) -> None:
        assert RUN in art("runs", ART_ROOT=str(demo_root)).stdout

    def test_says_what_cant_be_read(
        self, demo_report: DemoReport, demo_root: Path, tmp_path: Path
    ) -> None:
        shutil.copytree(demo_root / "demo", tmp_path / "demo")
        (tmp_path / "demo" / "python-seed0" / "run.json").write_text("{")
        assert "unreadable" in invoke(tmp_path, "runs")
        assert len(json.loads(invoke(tmp_path, "runs", "--json"))["damaged"]) == 1


class TestShow:
    def test_metrics_curve_and_a_trajectory(self, demo_report: DemoReport, demo_root: Path) -> None:
        shown = invoke(demo_root, "runs", "show", RUN)
        assert "2 steps" in shown
        heading = next(line for line in shown.splitlines() if line.split()[:2] == ["step", "split"])
        assert "retrieval" in heading
        assert "…" not in heading  # columns that don't fit are left out, not squeezed
        assert f"{TRAINING} training" in shown
        assert "I need something in Python" in shown
        assert "val, step 2, rollout" in shown

    def test_json(self, demo_report: DemoReport, demo_root: Path) -> None:
        shown = json.loads(invoke(demo_root, "runs", "show", "python-seed0", "--json"))
        assert {row["split"] for row in shown["metrics"]} == {"train", "val"}
        assert len(shown["rollouts"]["train/1"]) == 64
        assert shown["trajectory"]["histories"][0]["token_ids"]

    def test_a_rollout_by_the_beginning_of_its_id(
        self, demo_report: DemoReport, demo_root: Path
    ) -> None:
        trajectory = _first_training_trajectory(demo_root)
        shown = invoke(demo_root, "runs", "show", RUN, "--rollout", trajectory["rollout_id"][:16])
        assert f"train, step 1, rollout {trajectory['rollout_id']}" in shown
        assert trajectory["metadata"]["scenario"]["question"] in shown

    def test_tokens(self, demo_report: DemoReport, demo_root: Path) -> None:
        trajectory = _first_training_trajectory(demo_root)
        (history,) = trajectory["histories"]
        shown = invoke(
            demo_root, "runs", "show", RUN, "--rollout", trajectory["rollout_id"], "--tokens"
        )
        rows = [line.split() for line in shown.splitlines() if line.split()[0:1] != []]
        rows = [row for row in rows if row[0].isdecimal() and len(row) > 3]
        assert len(rows) == len(history["token_ids"])
        assert [row[1] for row in rows[:3]] == ["system"] * 3
        assert {row[1] for row in rows} == {"system", "user", "assistant"}
        trained = [row for row in rows if "●" in row]
        assert len(trained) == sum(history["loss_mask"])
        assert all(row[1] == "assistant" and row[-1] == "0" for row in trained)

    def test_tokens_in_colour(self) -> None:
        """Who said a token, whether it will be trained on, and how likely it was."""
        history = History(
            messages_and_choices=[{"role": "user", "content": "?"}],
            token_ids=[5, 6, 7],
            loss_mask=[False, True, True],
            logprobs=[None, -0.1, -5.0],
            policy_versions=[None, 3, 3],
            completion_ids=["c"],
        )
        shown = io.StringIO()
        console = Console(file=shown, force_terminal=True, color_system="standard", width=100)
        console.print(token_table(history, ["?", "a", "b"], ["user", "assistant", "assistant"]))
        _, observed, likely, unlikely, *_ = shown.getvalue().splitlines()
        cyan, green, red, bold_green, dim = (f"\x1b[{n}m" for n in ("36", "32", "31", "1;32", "2"))
        assert f"{cyan}user" in observed
        assert f'{dim}"?"' in observed
        assert "●" not in observed
        assert f"{green}assistant" in likely
        assert f'{bold_green}"a"' in likely
        assert f"{green} -0.100" in likely
        assert f"{red} -5.000" in unlikely
        assert all("●" in line and line.rstrip().endswith("3") for line in (likely, unlikely))

    def test_unknown_rollout(self, demo_report: DemoReport, demo_root: Path, art: Art) -> None:
        result = art("runs", "show", RUN, "--rollout", "zzz", "--root", str(demo_root))
        assert result.returncode == 1
        assert "no rollout of demo/python-seed0 has an id that begins with 'zzz'" in result.stderr


class TestCurve:
    def test_rises_from_left_to_right(self) -> None:
        lines = draw_curve([(0, 0.0), (1, 0.5), (2, 1.0)], [], width=21).plain.splitlines()
        assert [line.find(TRAINING) for line in lines if TRAINING in line][:-1] == [
            10 + 20,
            10 + 10,
            10,
        ]

    def test_held_out_is_drawn_over_training(self) -> None:
        picture = draw_curve([(0, 1.0)], [(0, 1.0)]).plain.splitlines()
        assert HELD_OUT in picture[0]

    @pytest.mark.parametrize("points", [[], [(0.0, float("nan"))]])
    def test_nothing_to_draw(self, points: list[tuple[float, float]]) -> None:
        assert draw_curve(points, []).plain == "no rewards yet"


def _first_training_trajectory(root: Path) -> dict[str, Any]:
    run = open_run_readonly(RUN, root)
    return run.trajectories.read("train", 1)[0].trajectories[0].model_dump(mode="json")
