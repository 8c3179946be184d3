"""``art mcp``: the commands, with a real (tiny, random) model, real servers and a fake judge."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from art_core.errors import ArtError
from integrations.mcp.cli import app
from tests.ruler.fake_judge import FakeJudge, running_judge
from tests.ruler.test_autorl import writes_and_judges

SERVER = str(Path(sys.executable).with_name("mcp-server-time"))
REWARD = """
def grade(outcome):
    assert outcome.workspace.connections[0].alive
    return len(outcome.answer) % 7 / 7
"""


@pytest.fixture
def judge() -> Generator[FakeJudge]:
    with running_judge() as judge:
        writes_and_judges(judge)
        yield judge


def art_mcp(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    process = started(folder, *arguments)
    try:
        stdout, stderr = process.communicate(timeout=240)
    finally:
        process.kill()
    return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    code = "import sys; from integrations.mcp.cli import app; app(sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "COLUMNS": "160",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(__file__).parents[3]),
        },
    )


def training(model: Path, *more: str) -> list[str]:
    return [
        "train", "--server", SERVER, "--model", str(model), "--steps", "1", "--groups", "2",
        "--rollouts", "3", "--max-tokens", "12", "--max-turns", "2", "--isolation", "shared",
        *more,
    ]  # fmt: skip


def test_inspect(tmp_path: Path) -> None:
    done = art_mcp(tmp_path, "inspect", "--server", SERVER, "--tool", "convert_time", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    view = json.loads(done.stdout)
    assert [tool["function"]["name"] for tool in view["tools"]] == ["convert_time"]
    assert view["servers"][0]["protocol"] == "2026-07-28"


def test_scenarios(judge: FakeJudge, tmp_path: Path) -> None:
    done = art_mcp(
        tmp_path, "scenarios", "--server", SERVER, "--judge", "fake", "--judge-url", judge.url,
        "--scenarios", "5", "--instructions", "Only about Oslo.",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    lines = (tmp_path / "scenarios.jsonl").read_text().splitlines()
    assert len(lines) == 5
    assert "convert_time" in judge.prompt()
    assert "Only about Oslo." in judge.prompt()


def test_training_by_a_judge(judge: FakeJudge, tiny_model_folder: Path, tmp_path: Path) -> None:
    arguments = training(tiny_model_folder, "--judge", "fake", "--judge-url", judge.url)
    done = art_mcp(tmp_path, *arguments, "--scenarios", "6")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "before training" in done.stdout
    run = tmp_path / ".art" / "mcp" / "agent"
    assert (run / "reward_curve.png").stat().st_size > 1_000
    assert "after training" in (run / "mcp" / "transcripts.txt").read_text()
    won = re.search(r"untrained model: .*; (\d+) won, (\d+) tied, (\d+) lost, 0 un", done.stdout)
    assert won is not None, done.stdout
    assert sum(map(int, won.groups())) == 2  # held out of six
    assert any("In this task success means" in judge.system(i) for i in range(len(judge.requests)))


@pytest.mark.long
def test_training_by_a_reward_resumes_and_knows_its_setup(
    tiny_model_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(REWARD)
    tasks = [json.dumps({"task": f"What time is it in zone {n}?"}) for n in range(5)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(tasks))
    mine = ["--reward", "mine:grade", "--scenarios-file", "tasks.jsonl"]
    arguments = training(tiny_model_folder, *mine)
    for steps in ("1", "2"):
        done = art_mcp(tmp_path, *arguments, "--steps", steps)
        assert done.returncode == 0, done.stderr[-3000:]
    run = tmp_path / ".art" / "mcp" / "agent"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {(row["split"], row["step"]) for row in rows} == {
        ("val", 0), ("train", 1), ("val", 1), ("train", 2), ("val", 2),
    }  # fmt: skip
    too_many = art_mcp(tmp_path, *arguments, "--warm-start", "9", "--name", "other")
    assert "--warm-start is 9, and there are 4" in " ".join(too_many.stderr.split())
    changed = art_mcp(tmp_path, *arguments, "--tool", "convert_time")
    assert changed.returncode == 1
    assert "begun with other tools" in " ".join(changed.stderr.replace("│", " ").split())


def demonstrated_tasks(folder: Path) -> list[str]:
    """Options with tasks that say how they are done, and a reward."""
    (folder / "mine.py").write_text(REWARD)
    lines: list[str] = []
    for hour in range(5):
        zones = {"source_timezone": "UTC", "target_timezone": "Asia/Tokyo"}
        call = {"name": "convert_time", "arguments": {**zones, "time": f"0{hour}:00"}}
        shown = {"calls": [call], "answer": f"{hour + 9}:00"}
        lines.append(json.dumps({"task": f"{hour} in Tokyo?", "demonstration": shown}))
    (folder / "tasks.jsonl").write_text("\n".join(lines))
    return [
        "--scenarios-file", "tasks.jsonl", "--reward", "mine:grade",
        "--warm-start", "3", "--min-reward", "0",
    ]  # fmt: skip


def rows(run: Path) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_training_after_demonstrations(tiny_model_folder: Path, tmp_path: Path) -> None:
    arguments = training(tiny_model_folder, *demonstrated_tasks(tmp_path), "--steps", "2")
    done = art_mcp(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "after demonstrations" in done.stdout
    run = tmp_path / ".art" / "mcp" / "agent"
    assert len((run / "mcp" / "demonstrations.jsonl").read_text().splitlines()) == 3
    assert [row["step"] for row in rows(run) if row["split"] == "val"] == [0, 1, 2]
    assert any("sft/last_loss" in row for row in rows(run) if row["step"] == 1)


@pytest.mark.long
@pytest.mark.parametrize("killed_at", [("val", 0), ("val", 1), ("train", 2)])
def test_killed_in_the_middle_it_goes_on(
    tiny_model_folder: Path, tmp_path: Path, killed_at: tuple[str, int]
) -> None:
    """With SIGKILL: before the warm start, after it, and between two steps by reward."""
    arguments = training(tiny_model_folder, *demonstrated_tasks(tmp_path), "--steps", "4")
    run = tmp_path / ".art" / "mcp" / "agent"
    process = started(tmp_path, *arguments)
    deadline = time.monotonic() + 240
    while killed_at not in {(row["split"], row["step"]) for row in rows(run)}:
        assert process.poll() is None, process.communicate()[1][-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    written = (run / "mcp" / "demonstrations.jsonl").stat()
    before = rows(run)
    assert ("train", 4) not in {(row["split"], row["step"]) for row in before}

    done = art_mcp(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    after = rows(run)
    assert after[: len(before)] == before
    # Each step's training once, and nothing demonstrated or evaluated again.
    assert [row["step"] for row in after if "loss" in row or "sft/last_loss" in row] == [1, 2, 3, 4]
    assert [row["step"] for row in after if row["split"] == "val"] == [0, 1, 4]
    assert (run / "mcp" / "demonstrations.jsonl").stat().st_mtime_ns == written.st_mtime_ns
    assert (run / "mcp" / "transcripts.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "--server", SERVER, "--judge", "x", "--warm-start", "2"], "nobody to demonst"),
        (["train", "--server", SERVER, "--judge", "x", "--teacher", "y"], "without --warm-start"),
        (["train", "--server", SERVER], "nothing gives rewards"),
        (["train", "--server", SERVER, "--reward", "json:loads"], "nobody to write scenarios"),
        (["train", "--server", SERVER, "--reward", "no:x"], "can't be imported"),
        (["train", "--server", SERVER, "--judge", "x", "--isolation", "none"], "isolation is"),
        (["inspect"], "none of --server, --url and --config"),
        (["inspect", "--server", "no-such-command"], "can't be started"),
        (["inspect", "--server", SERVER, "--tool", "nope"], "there is no tool 'nope'"),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtError, match=said):
        app(arguments, standalone_mode=False)
