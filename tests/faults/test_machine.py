"""Disks that are full or lose an answer, clocks that jump, signals, forks and notebooks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.faults.harness import PATIENCE, Result, Runs, look, read_log
from tests.faults.training import STEPS


def wait_for(process: BaseProcess, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize(
    "fault", ["a rename is done and fails", pytest.param("a rename fails", marks=pytest.mark.long)]
)
def test_a_rename_that_fails_stops_the_run_and_loses_nothing(
    runs: Runs, undisturbed: Result, tmp_path: Path, fault: str
) -> None:
    process = runs.begin(tmp_path / "runs", fault, 2)
    process.join(PATIENCE)
    assert process.exitcode == 1
    assert "StorageError: can't write" in read_log(tmp_path / "runs")
    assert runs.finish(tmp_path / "runs") == undisturbed


@pytest.mark.long
@pytest.mark.parametrize("fault", ["the clock jumps", "the agent forks"])
def test_what_changes_nothing(runs: Runs, undisturbed: Result, tmp_path: Path, fault: str) -> None:
    process = runs.begin(tmp_path / "runs", fault, 2)
    process.join(PATIENCE)
    assert process.exitcode == 0, read_log(tmp_path / "runs")
    assert look(tmp_path / "runs") == undisturbed


@pytest.mark.parametrize(
    ("signals", "exit_code"),
    [
        ([signal.SIGINT, signal.SIGINT], 1),
        pytest.param([signal.SIGINT], 1, marks=pytest.mark.long),
        pytest.param([signal.SIGTERM], 128 + signal.SIGTERM, marks=pytest.mark.long),
        pytest.param([signal.SIGTERM, signal.SIGTERM], 143, marks=pytest.mark.long),
    ],
)
def test_signals_stop_a_run_that_goes_on_as_if_nothing_had_been(
    runs: Runs, undisturbed: Result, tmp_path: Path, signals: list[signal.Signals], exit_code: int
) -> None:
    root = tmp_path / "runs"
    process = runs.begin(root)
    wait_for(process, lambda: bool(list(root.glob("*/*/checkpoints/00001"))))
    for each in signals:
        os.kill(process.pid or 0, each)
        time.sleep(0.02)
    process.join(30)
    assert process.exitcode == exit_code, read_log(root)
    assert runs.finish(root) == undisturbed


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, 24 MB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("only a user who may mount can have a disk that is really full")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.long
def test_a_disk_that_is_really_full(runs: Runs, undisturbed: Result, small_disk: Path) -> None:
    root = small_disk / "runs"
    process = runs.begin(root)
    wait_for(process, lambda: bool(list(root.glob("*/*/checkpoints/00001"))))
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    process.join(PATIENCE)
    assert process.exitcode == 1
    filler.unlink()
    assert runs.finish(root) == undisturbed


@pytest.mark.long
def test_another_machine_goes_on_with_a_copied_folder(
    runs: Runs, undisturbed: Result, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    runs.kill_at(here, "after a commit", 2)
    shutil.copytree(here / "faults" / "bot", there / "faults" / "bot")
    shutil.rmtree(here)
    assert runs.finish(there) == undisturbed


CELLS = """
import art_core as art
from pathlib import Path
from tests.faults.training import CONFIG, HELD_OUT, SCENARIOS, Agent
backend = art.LocalBackend(Path({root!r}), dtype="float32", deterministic=True)
model = art.TrainableModel(name="bot", project="faults", base_model={base!r})
await model.register(backend)
report = await art.train(model, Agent(model).play, SCENARIOS, CONFIG, validation=HELD_OUT)
print("steps done:", report.steps)
await backend.close()
"""


@pytest.mark.long
def test_in_the_running_loop_of_a_notebook(
    undisturbed: Result, tiny_model_folder: Path, tmp_path: Path
) -> None:
    """Python's own REPL with top-level await: one loop that runs before, between and after."""
    cells = CELLS.format(root=str(tmp_path / "runs"), base=str(tiny_model_folder))
    done = subprocess.run(
        [sys.executable, "-m", "asyncio"],
        input=cells,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert f"steps done: {STEPS}" in done.stdout, done.stderr
    assert look(tmp_path / "runs") == undisturbed
