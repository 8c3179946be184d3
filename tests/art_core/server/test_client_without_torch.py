"""The agent's side in an environment of its own, with the base dependencies only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from art_core.runs import RunReader
from tests.art_core.server.conftest import new_key
from tests.art_core.server.processes import ServerProcess

REPOSITORY = Path(__file__).parents[3]

CLIENT = """
import asyncio, importlib.util, sys
from openai import AsyncOpenAI
import art_core as art

for heavy in ("torch", "transformers", "peft", "trl", "numpy", "litellm"):
    assert importlib.util.find_spec(heavy) is None, heavy

url, key, base_model, root = sys.argv[1:]
model = art.TrainableModel(name="remote-bot", project="shop", base_model=base_model)

async def play(town):
    async with model.rollout(town) as trajectory:
        async with AsyncOpenAI(base_url=trajectory.base_url, api_key=trajectory.api_key) as client:
            done = await client.chat.completions.create(
                model="gpt-4.1", messages=[{"role": "user", "content": town}], max_tokens=8
            )
        text = done.choices[0].message.content or ""
        trajectory.reward = (sum(map(ord, text)) % 101) / 100
    return trajectory

async def main():
    async with art.RemoteBackend(url, key, root=root) as backend:
        await model.register(backend)
        config = art.TrainConfig(steps=2, groups_per_step=2, rollouts_per_group=4, eval_every=2)
        report = await art.train(model, play, ["Oslo", "Rome"], config, validation=["Bonn"])
        print("steps", report.steps)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment in which only this package was installed."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "-c", "constraints.txt", "."]
    subprocess.run(install, cwd=REPOSITORY, check=True, timeout=600)
    return python


@pytest.mark.long
@pytest.mark.timeout(900)
def test_base_dependencies_are_enough_to_train_on_a_server(
    bare_python: Path, server: ServerProcess, tiny_model_folder: Path, tmp_path: Path
) -> None:
    key = new_key(server, "shop")
    arguments = [server.url, key, str(tiny_model_folder), str(tmp_path / "client")]
    done = subprocess.run(
        [bare_python, "-c", CLIENT, *arguments],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "steps 2" in done.stdout
    assert RunReader(server.root / "shop" / "remote-bot").step == 2
