"""Whether a run is whole, and runs that begin with a checkpoint of another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from art_core.cli.main import main
from art_core.config import TrainConfig
from art_core.errors import RunDamagedError, RunError
from art_core.runs import RunDirectory, RunReader, fork_run, verify_run
from art_core.runs.identity import FORMAT_VERSION, RunIdentity
from art_core.runs.records import RecordStore
from art_core.trajectories import Trajectory, TrajectoryGroup
from tests.faults.samples import completion

FORMAT_1 = Path(__file__).with_name("format_1")
"""A run directory as the format before this one had it."""


def write(folder: Path) -> None:
    (folder / "adapter.safetensors").write_bytes(b"weights")


@pytest.fixture
def run(tmp_path: Path) -> RunReader:
    with RunDirectory.open(tmp_path, project="shop", model="bot", base_model="tiny") as run:
        run.bind(TrainConfig(learning_rate=1e-3))
        for step in (1, 2, 3):
            groups = [TrajectoryGroup([Trajectory(reward=r) for r in (0.0, step / 10)])]
            run.commit(step, write, groups=groups)
            run.log_groups(step, "val", groups)
        run.journal.add(4, TrajectoryGroup([Trajectory(reward=1.0)]))
    store = RecordStore(run.records_path)
    store.put([completion("c0"), completion("c1")])
    store.close()
    return RunReader(run.path)


def art(*words: str) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main(["runs", *words])
    return int(ended.value.code or 0)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def scramble(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b"\xff" * (len(content) - len(content) // 2)
    path.write_bytes(content)


def contents(folder: Path) -> dict[Path, bytes]:
    """All files but those that SQLite makes for each reader."""
    files = (p for p in folder.rglob("*") if p.is_file() and "sqlite-" not in p.name)
    return {path: path.read_bytes() for path in files}


DAMAGE: dict[str, Callable[[Path], object]] = {
    "checkpoints/00002": lambda run: (run / "checkpoints/00002/adapter.safetensors").unlink(),
    "checkpoints/00003": lambda run: cut(run / "checkpoints/00003/manifest.json"),
    "metrics.jsonl": lambda run: (run / "metrics.jsonl").write_text('{"step": 1, "x": "y"}\n'),
    "steps.jsonl": lambda run: (run / "steps.jsonl").write_text('{"step": 1}\n'),
    "trajectories/val/2": lambda run: scramble(run / "trajectories/val/00002.jsonl"),
    "trajectories/train/1": lambda run: (run / "trajectories/train/00001.jsonl").write_text("x\n"),
    "journal/00004.jsonl": lambda run: (run / "journal/00004.jsonl").write_text("[]\n"),
    "records.sqlite": lambda run: scramble(run / "records.sqlite"),
}


def test_a_whole_run_is_said_to_be_whole(
    run: RunReader, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(run.path)
    assert art("verify", "bot", "--root", str(tmp_path), "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["whole"]
    assert {part["part"] for part in answer["parts"]} >= DAMAGE.keys()
    assert contents(run.path) == before


@pytest.mark.parametrize("part", DAMAGE)
def test_damage_is_found_where_it_is(
    run: RunReader, tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    DAMAGE[part](run.path)
    assert art("verify", "bot", "--root", str(tmp_path), "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    damaged = [found["part"] for found in answer["parts"] if found["problem"]]
    assert part in damaged
    assert set(damaged) <= {part, "checkpoints/00001"}  # whose groups those are


def test_a_checkpoint_of_another_run_is_found(run: RunReader, tmp_path: Path) -> None:
    with RunDirectory.open(tmp_path, project="shop", model="other", base_model="tiny") as other:
        other.commit(4, write)
    shutil.copytree(other.path / "checkpoints/00004", run.path / "checkpoints/00004")
    (found,) = [finding for finding in verify_run(run) if finding.problem]
    assert "belongs to run" in str(found.problem)


def test_a_fork_goes_on_from_the_step_with_other_settings(
    run: RunReader, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--name", "bolder", "--root", str(tmp_path))
    assert art("fork", "--from", "shop/bot@2", *where) == 0
    assert "begins at step 2" in capsys.readouterr().out.replace("\n", " ")
    with RunDirectory.open(tmp_path, project="shop", model="bolder", base_model="tiny") as fork:
        assert fork.step == 2
        assert fork.identity.run_id != run.identity.run_id
        origin = fork.identity.forked_from
        assert origin is not None
        assert (origin.run_id, origin.step) == (run.identity.run_id, 2)
        assert [row for row in run.metrics.read() if row.step <= 2] == fork.metrics.read()
        trained = run.trajectories.read("train", 2)
        with pytest.raises(ValueError, match="was trained on in step 2"):
            fork.check_untrained(trained)
        fork.bind(TrainConfig(learning_rate=5e-2))
        fork.commit(3, write, groups=[TrajectoryGroup([Trajectory(reward=1.0)])])
    assert not [finding for finding in verify_run(RunReader(fork.path)) if finding.problem]
    assert run.step == 3


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("shop/bot@7", "no checkpoint of step 7"),
        ("shop/bot@x", "the step of 'shop/bot@x' is 'x'"),
        ("nobody@1", "there is no run called 'nobody'"),
    ],
)
def test_a_fork_of_nothing_is_refused(
    run: RunReader, tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, message: str
) -> None:
    assert art("fork", "--from", source, "--name", "new", "--root", str(tmp_path)) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "shop" / "new").exists()


def test_a_fork_over_a_run_or_of_a_damaged_step_is_refused(run: RunReader, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="exists"):
        fork_run(run, 2, root=tmp_path, project="shop", model="bot")
    cut(run.path / "checkpoints/00002/adapter.safetensors")
    with pytest.raises(RunDamagedError, match="adapter"):
        fork_run(run, 2, root=tmp_path, project="shop", model="new")
    assert sorted(p.name for p in (tmp_path / "shop").iterdir() if "fork" in p.name) == []


def test_a_run_of_the_format_before_is_read_and_gone_on_with(tmp_path: Path) -> None:
    assert json.loads((FORMAT_1 / "run.json").read_text())["format_version"] == 1
    shutil.copytree(FORMAT_1, tmp_path / "shop" / "bot")
    with RunDirectory.open(tmp_path, project="shop", model="bot", base_model="tiny") as run:
        assert run.step == 2
        assert run.identity.format_version == FORMAT_VERSION
        assert run.identity.forked_from is None
        run.commit(3, write, groups=[TrajectoryGroup([Trajectory(reward=1.0)])])
    assert not [finding for finding in verify_run(RunReader(run.path)) if finding.problem]
    assert len(list(RunReader(run.path).metrics.read())) == 4


@pytest.mark.parametrize("file", ["run.json", "checkpoints/00003/manifest.json"])
def test_a_newer_format_says_to_upgrade(run: RunReader, file: str) -> None:
    path = run.path / file
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "format_version": 9, "new": 1}))
    with pytest.raises(RunDamagedError, match=r"has format 9.*Upgrade art-core"):
        RunReader(run.path).checkpoints.all()
    if file == "run.json":
        with pytest.raises(RunDamagedError, match="has format 9"):
            RunIdentity.read(run.path)
