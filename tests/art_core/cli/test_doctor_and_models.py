"""``art doctor`` and ``art models`` on this machine."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from art_core.cli import diagnosis
from art_core.cli.diagnosis import Fact, diagnose
from art_core.cli.main import build_app


def invoke(*words: str) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(build_app(words), list(words))
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def facts() -> dict[str, Fact]:
    return {f"{fact.area}/{fact.name}": fact for fact in diagnose()}


class TestDoctor:
    def test_knows_this_machine(self) -> None:
        found = facts()
        assert found["machine/art-core"].state == "ok"
        assert "float32" in found["devices/cpu"].detail or "bfloat16" in found["devices/cpu"].detail
        assert found["engines/embedded"].state == "ok"
        assert "torch" in found["extras/train"].detail
        assert found["network/loopback"].state == "ok"

    def test_what_isnt_there_has_a_remedy(self) -> None:
        assert all(fact.remedy for fact in diagnose() if fact.state != "ok")

    def test_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def nothing_installed(name: str) -> None:
            del name

        monkeypatch.setattr(diagnosis, "find_spec", nothing_installed)
        found = facts()
        assert found["engines/embedded"].remedy == 'pip install "art-core[train]"'
        assert found["devices/torch"].state == "missing"

    def test_names_a_version_that_is_too_old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        installed = diagnosis.version

        def version(name: str) -> str:
            return "0.1" if name == "peft" else installed(name)

        monkeypatch.setattr(diagnosis, "version", version)
        assert "peft is 0.1, needs >=" in facts()["extras/train"].detail

    def test_a_port_that_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            monkeypatch.setattr(diagnosis, "SERVE_PORT", port)
            assert facts()[f"network/port {port}"].state == "missing"

    def test_an_empty_cache(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("ART_CACHE", str(tmp_path / "nowhere"))
        assert facts()["models/smollm2-135m"].remedy == "art models pull smollm2-135m"

    def test_json_has_all_facts(self) -> None:
        report = json.loads(invoke("doctor", "--json"))
        assert len(report["facts"]) == len(diagnose())

    def test_text(self) -> None:
        shown = invoke("doctor")
        assert "devices" in shown
        assert "art-core[vllm]" in shown


class TestModels:
    def test_lists_the_built_in_one(self, smollm2_folder: Path) -> None:
        models = json.loads(invoke("models", "list", "--json"))["models"]
        assert {"name": "smollm2-135m", "source": "built in", "path": str(smollm2_folder)} in models
        assert str(smollm2_folder) in invoke("models", "list")

    def test_says_what_to_fetch(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("ART_CACHE", str(tmp_path))
        assert "no: art models pull smollm2-135m" in invoke("models", "list")

    def test_pull_what_is_here_already(self, smollm2_folder: Path) -> None:
        assert f"smollm2-135m is in {smollm2_folder}" in invoke("models", "pull", "smollm2-135m")

    def test_pull_what_doesnt_exist(self) -> None:
        words = ["models", "pull", "smollm3"]
        result = CliRunner().invoke(build_app(words), words)
        assert "neither built in, nor a folder" in str(result.exception)
