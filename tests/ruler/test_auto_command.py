"""``art auto``, as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.ruler.fake_judge import FakeJudge
from tests.ruler.test_autorl import writes_and_judges

AGENT = """
import art_core as art

async def play(model, scenario):
    async with model.rollout(scenario) as trajectory:
        await model.openai_client().chat.completions.create(
            model=model.get_inference_name(),
            messages=[{"role": "user", "content": "My agent: " + scenario.task}],
            max_tokens=4,
        )
    return trajectory
"""


def run_auto(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys, typer; from ruler.auto.cli import auto; app = typer.Typer(); "
    code += "app.command()(auto); app(sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "COLUMNS": "160",
            "OMP_NUM_THREADS": "1",
        },
    )


def test_a_description_is_enough(
    fake_judge: FakeJudge, tiny_model_folder: Path, tmp_path: Path
) -> None:
    writes_and_judges(fake_judge)
    (tmp_path / "my_agent.py").write_text(AGENT)
    done = run_auto(
        tmp_path, "Say something.", "--judge", "fake", "--judge-url", fake_judge.url,
        "--model", str(tiny_model_folder), "--scenarios", "6", "--steps", "1", "--groups", "2",
        "--rollouts", "2", "--agent", "my_agent:play",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "won against the untrained model" in done.stdout
    assert "5 to train on, 1 held out" in done.stdout
    assert any("My agent: " in fake_judge.prompt(i) for i in range(len(fake_judge.requests)))
    assert (tmp_path / ".art").is_dir()


def test_an_agent_that_isnt_there_is_named(tmp_path: Path) -> None:
    done = run_auto(tmp_path, "x", "--judge", "fake", "--agent", "nowhere:play")
    assert done.returncode == 1
    assert "agent 'nowhere:play' can't be imported" in done.stderr
