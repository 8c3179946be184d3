"""``art check`` on a user's own module, with a real (tiny) model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Protocol

import pytest

from art_core.cli.targets import load_target
from art_core.errors import ConfigError, ScenarioError

AGENT = """
import openai
import art_core as art

model = art.TrainableModel(name="bot", project="shop", base_model={base_model!r})
scenarios = [{{"question": "What is 1 + 1?"}}]


async def play(scenario):
    async with model.rollout(scenario) as trajectory:
        client = openai.AsyncOpenAI(api_key="the-users-own")
        response = await client.chat.completions.create(
            model="gpt-4.1",
            messages=[{{"role": "user", "content": scenario["question"]}}],
            max_tokens=8,
        )
    trajectory.reward = len(response.choices[0].message.content) % 7
    return trajectory
"""


class Art(Protocol):
    def __call__(
        self, *arguments: str, cwd: Path = ..., **environment: str
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def agent_folder(tmp_path: Path, tiny_model_folder: Path) -> Path:
    (tmp_path / "shop_agent.py").write_text(AGENT.format(base_model=str(tiny_model_folder)))
    return tmp_path


def test_plays_a_group_and_measures_a_step(art: Art, agent_folder: Path) -> None:
    result = art("check", "shop_agent:play", "--solved", "5", "--json", cwd=agent_folder)
    assert result.returncode in (0, 1), result.stderr
    report = json.loads(result.stdout)
    assert report["scenario"] == {"question": "What is 1 + 1?"}
    assert len(report["rollouts"]) == 8
    assert all(rollout["redirected"] == 1 for rollout in report["rollouts"])
    assert report["step_cost"]["seconds"] > 0
    assert report["step_cost"]["tokens"] > 0
    assert report["step_seconds"] > report["seconds"]
    assert set(report["pass_at_k"]) == {"1", "2", "4", "8"}
    assert not (agent_folder / ".art").exists(), "it leaves no run behind"


def test_says_what_to_change(art: Art, agent_folder: Path) -> None:
    path = agent_folder / "shop_agent.py"
    path.write_text(path.read_text().replace("content) % 7", "content) * 0"))
    result = art("check", "shop_agent:play", cwd=agent_folder)
    assert result.returncode == 1, "not ready to train"
    assert "8 calls recorded: 8 redirected from the agent's own host" in result.stdout
    assert "every rollout got 0" in result.stdout
    assert "GiB more memory" in result.stdout


class TestTarget:
    def load(self, agent: str, folder: Path, **names: str) -> None:
        defaults = {"model": "model", "scenarios": "scenarios"}
        load_target(agent, folder=folder, **{**defaults, **names})

    @pytest.fixture
    def folder(self, agent_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        import sys

        monkeypatch.setattr(sys, "path", [str(agent_folder), *sys.path])
        monkeypatch.delitem(sys.modules, "shop_agent", raising=False)
        return agent_folder

    @pytest.mark.parametrize("agent", ["shop_agent", ":play", "shop_agent:"])
    def test_must_name_module_and_function(self, folder: Path, agent: str) -> None:
        with pytest.raises(ConfigError, match="isn't module:function"):
            self.load(agent, folder)

    def test_unknown_module(self, folder: Path) -> None:
        with pytest.raises(ConfigError, match="'no_such_agent' can't be imported"):
            self.load("no_such_agent:play", folder)

    def test_unknown_function(self, folder: Path) -> None:
        with pytest.raises(ConfigError, match="'shop_agent' has no 'plya'"):
            self.load("shop_agent:plya", folder)

    def test_model_of_another_type(self, folder: Path) -> None:
        with pytest.raises(ConfigError, match="shop_agent:scenarios is a list"):
            self.load("shop_agent:play", folder, model="scenarios")

    def test_scenarios_from_a_file(self, folder: Path) -> None:
        file = folder / "more.jsonl"
        file.write_text('{"question": "a"}\n\n{"question": "b"}\n')
        target = load_target("shop_agent:play", model="model", scenarios=str(file), folder=folder)
        assert target.scenarios == [{"question": "a"}, {"question": "b"}]

    def test_a_line_that_isnt_json(self, folder: Path) -> None:
        file = folder / "more.jsonl"
        file.write_text('{"question": "a"}\n{"question"\n')
        with pytest.raises(ScenarioError, match="line 2, isn't JSON"):
            self.load("shop_agent:play", folder, scenarios=str(file))
