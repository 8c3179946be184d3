"""``art demo``: what it prints, how it goes on, how it is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from art_core.cli.demo_view import print_demo
from art_core.demo.report import DemoReport
from art_core.runs import open_run_readonly

ART = Path(sys.executable).with_name("art")


def test_prints_scores_transcripts_and_where_the_run_is(
    demo_report: DemoReport, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    print_demo(demo_report)
    shown = capsys.readouterr().out
    assert f"{demo_report.base.retrieval:.3f}" in shown
    assert f"{demo_report.copying.retrieval:.3f}" in shown
    assert shown.count("I need something in Python") == 3
    assert shown.count("before\n") == shown.count("after\n") == 3
    assert f"run    {demo_report.run_path}" in shown
    assert f"curve  {demo_report.plot_path}" in shown


def test_an_unknown_package() -> None:
    result = subprocess.run(
        [ART, "demo", "--package", "no_such_package"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stderr.startswith("error: package 'no_such_package' can't be imported")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_trains_the_real_model(tmp_path: Path, smollm2_folder: Path) -> None:
    """One step of the real thing, then the next one from where it was."""
    reports: list[dict[str, object]] = []
    for steps in ("1", "2"):
        command = [ART, "demo", "--steps", steps, "--root", str(tmp_path), "--json"]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        reports.append(json.loads(result.stdout))
    first, second = reports
    assert (first["steps"], second["steps"]) == (1, 2)
    assert first["base"] == second["base"], "what was measured isn't measured again"
    run = open_run_readonly("demo/python-seed0", tmp_path)
    applied = [row.metrics["applied"] for row in run.metrics.read() if row.split == "train"]
    assert applied == [1.0, 1.0]
    assert run.plot_path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_interrupted_it_can_go_on(tmp_path: Path, smollm2_folder: Path) -> None:
    command = [ART, "demo", "--steps", "1", "--root", str(tmp_path), "--json"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "held-out at step 0" in line:
            break
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert "Stopped. Start it again to go on" in stderr
    assert "Traceback" not in stderr
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(again.stdout)["steps"] == 1
