"""``art compare`` on a trained run: what its records say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from art_core.cli.main import build_app
from art_core.demo.report import DemoReport
from art_core.errors import RunDamagedError
from art_core.runs import open_run_readonly
from art_core.runs.records import read_rollouts

RUN = "demo/python-seed0"


def test_versions_of_a_trained_model(demo_report: DemoReport, demo_root: Path) -> None:
    command = ["compare", f"{RUN}@0", RUN, "--json", "--root", str(demo_root)]
    result = CliRunner().invoke(build_app(command), command)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    before, after = found["rows"]
    assert (before["step"], after["step"]) == (0, 2)
    assert found["left_out"] == {}
    run = open_run_readonly(RUN, demo_root)
    rewards = {row.step: row.metrics["reward"] for row in run.metrics.read() if row.split == "val"}
    for row in (before, after):
        assert row["trained"]
        assert row["reward"] == pytest.approx(rewards[row["step"]])
        assert row["cost_usd"] is None
        groups = run.trajectories.read("val", row["step"])
        ids = [t.rollout_id for g in groups for t in g.trajectories if t.rollout_id is not None]
        records = [r for each in read_rollouts(run.records_path, ids).values() for r in each]
        sampled = sum(len(r.completion_token_ids) for r in records if r.may_be_trained)
        assert row["completion_tokens"] == pytest.approx(sampled / len(ids))
        assert row["seconds"] > 0


def test_damaged_records_are_named(
    demo_report: DemoReport, demo_root: Path, tmp_path: Path
) -> None:
    shutil.copytree(demo_root / "demo", tmp_path / "demo")
    records = tmp_path / "demo" / "python-seed0" / "records.sqlite"
    records.write_bytes(b"not a database" * 100)
    command = ["compare", RUN, "--root", str(tmp_path)]
    error = CliRunner().invoke(build_app(command), command).exception
    assert isinstance(error, RunDamagedError)
    assert "records.sqlite" in str(error)
