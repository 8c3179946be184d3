"""A training run that is killed, at each named point, goes on as if nothing had happened."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("training_script.py")

QUICK = [
    "in a rollout",
    "after a group is in the journal",
    "after the trajectories are written",
    "right after a checkpoint",
]
LONG = [
    "in the first evaluation",
    "in a late rollout",
    "before a group is in the journal",
    "before the trajectories are written",
    "before a checkpoint",
    "after the metrics of a step",
    "after a commit",
    "while checkpoints are removed",
    "before an evaluation is logged",
    "after an evaluation is logged",
]


def start(root: Path, *point: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(root), *point],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = start(tmp_path_factory.mktemp("undisturbed"))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["steps"] == 4
    assert list(result["val"]) == ["0", "2", "4"]
    assert result["leftovers"] == []
    return result


def same(result: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether all but the number of rollouts played in this start is the same."""
    return {**result, "played": 0} == {**expected, "played": 0}


@pytest.mark.parametrize(
    "point", [*QUICK, *(pytest.param(point, marks=pytest.mark.long) for point in LONG)]
)
def test_a_killed_run_ends_as_an_undisturbed_one(
    tmp_path: Path, undisturbed: dict[str, Any], point: str
) -> None:
    killed = start(tmp_path, point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = start(tmp_path)
    assert again.returncode == 0, again.stderr
    result = json.loads(again.stdout)
    assert same(result, undisturbed)
    assert result["played"] < undisturbed["played"] or point == "in the first evaluation"


@pytest.mark.parametrize(
    ("kind", "where", "step"),
    [
        ("SIGTERM", "in a rollout", 1),
        ("SIGINT", "in a training step", 2),
        pytest.param("SIGINT", "in a rollout", 1, marks=pytest.mark.long),
        pytest.param("SIGTERM", "in a training step", 2, marks=pytest.mark.long),
    ],
)
def test_a_signal_stops_a_run_from_where_it_goes_on(
    tmp_path: Path, undisturbed: dict[str, Any], kind: str, where: str, step: int
) -> None:
    stopped = start(tmp_path, f"{kind} {where}")
    if kind == "SIGTERM":
        assert stopped.returncode == 128 + signal.SIGTERM, stopped.stderr
    else:
        assert stopped.returncode == -signal.SIGINT, stopped.stderr
        assert "KeyboardInterrupt" in stopped.stderr
    assert f"Stopped. Start it again to go on after step {step}." in stopped.stderr
    again = start(tmp_path)
    assert again.returncode == 0, again.stderr
    assert same(json.loads(again.stdout), undisturbed)


def test_a_full_disk_stops_a_run_and_loses_nothing(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    stopped = start(tmp_path, "a full disk")
    assert stopped.returncode == 1, stopped.stderr
    assert "StorageError: can't append to " in stopped.stderr
    assert "00002.jsonl: File too large. Raise the file size limit" in stopped.stderr
    again = start(tmp_path)
    assert again.returncode == 0, again.stderr
    assert same(json.loads(again.stdout), undisturbed)


def test_a_second_start_while_one_runs_is_refused(tmp_path: Path) -> None:
    first = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path; from art_core.runs import RunDirectory\n"
            "run = RunDirectory.open(Path(sys.argv[1]), project='shop', model='bot')\n"
            "print('open', flush=True); time.sleep(60)",
            str(tmp_path),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None
    assert first.stdout.readline() == "open\n"
    second = start(tmp_path)
    first.kill()
    first.stdout.close()
    first.wait()
    assert second.returncode == 1
    assert f"RunLockedError: {tmp_path}/shop/bot is in use by process {first.pid}" in (
        second.stderr
    )
