"""The command itself: help, errors, interruption, commands that packages add."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

import pytest
from typer.testing import CliRunner

from art_core.cli.discovery import BUILT_IN, CommandSource, find_commands
from art_core.cli.main import build_app
from art_core.errors import ConfigError


class Art(Protocol):
    def __call__(
        self, *arguments: str, cwd: Path = ..., **environment: str
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A folder, for PYTHONPATH, with an installed package that adds commands."""
    folder = tmp_path / "site"
    (folder / "artplug-1.0.dist-info").mkdir(parents=True)
    (folder / "artplug-1.0.dist-info" / "METADATA").write_text("Name: artplug\nVersion: 1.0\n")
    (folder / "artplug-1.0.dist-info" / "entry_points.txt").write_text(
        "[art_core.commands]\n"
        "greet = artplug.greet:greet\n"
        "broken = artplug.broken:app\n"
        "sleep = artplug.greet:sleep\n"
        "tools = artplug.tools:app\n"
    )
    package = folder / "artplug"
    package.mkdir()
    (package / "__init__.py").write_text("raise_if_imported = open('imported', 'w').close()\n")
    (package / "greet.py").write_text(
        '"""Greet somebody.\n\nMore."""\n'
        "import time\n"
        "def greet(name: str) -> None:\n    print(f'hello {name}')\n"
        "def sleep() -> None:\n    print('asleep', flush=True)\n    time.sleep(60)\n"
    )
    (package / "broken.py").write_text('"""Break."""\nimport no_such_module\n')
    (package / "tools.py").write_text(
        "import typer\napp = typer.Typer()\n"
        "@app.command()\ndef one() -> None:\n    print('one')\n"
        "@app.command()\ndef two() -> None:\n    print('two')\n"
    )
    return folder


class TestHelp:
    def test_lists_every_built_in_command_with_what_it_does(self, art: Art) -> None:
        result = art("--help")
        assert result.returncode == 0
        for source in find_commands():
            assert source.name in result.stdout
            assert source.summary in result.stdout

    def test_is_quick(self, art: Art) -> None:
        art("--help")  # writes the bytecode
        usage = os.times()
        started = usage.children_user + usage.children_system
        for _ in range(3):
            art("--help")
        usage = os.times()
        spent = (usage.children_user + usage.children_system - started) / 3
        assert spent < 0.5, f"{spent:.2f} s of processor time"

    def test_imports_no_command(self) -> None:
        code = (
            "import sys\n"
            "from art_core.cli.main import build_app\n"
            "build_app(['--help'])\n"
            "heavy = {'torch', 'transformers', 'openai', 'fastapi', 'litellm', 'pydantic',\n"
            "         'art_core.cli.demo', 'art_core.runs'} & set(sys.modules)\n"
            "assert not heavy, heavy\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    @pytest.mark.parametrize("command", sorted(BUILT_IN))
    def test_of_each_command(self, command: str) -> None:
        words = [command, "--help"]
        result = CliRunner().invoke(build_app(words), words)
        assert result.exit_code == 0, result.output
        assert "Usage" in result.output

    def test_without_arguments(self, art: Art) -> None:
        assert "Usage: art" in art().stdout

    def test_version(self, art: Art) -> None:
        from art_core import __version__

        assert art("--version").stdout == f"art-core {__version__}\n"


class TestErrors:
    def test_of_ours_are_one_message_without_traceback(self, art: Art) -> None:
        result = art("runs", "show", "nobody")
        assert result.returncode == 1
        assert result.stdout == ""
        assert result.stderr == ("error: there is no run called 'nobody' under .art. Runs: none.\n")

    def test_have_a_traceback_with_debug(self, art: Art) -> None:
        result = art("--debug", "runs", "show", "nobody")
        assert result.returncode == 1
        assert "Traceback" in result.stderr
        assert "open_run_readonly" in result.stderr

    def test_unknown_command(self, art: Art) -> None:
        result = art("rnus")
        assert result.returncode == 2
        assert "No such command 'rnus'" in result.stderr
        assert "Traceback" not in result.stderr

    def test_wrong_option(self, art: Art) -> None:
        assert art("demo", "--steps", "0").returncode == 2


class TestPackages:
    def test_are_listed_without_being_imported(self, art: Art, plugin: Path) -> None:
        result = art("--help", cwd=plugin, PYTHONPATH=str(plugin))
        assert result.returncode == 0, result.stderr
        assert "Greet somebody" in result.stdout
        assert "from artplug" in result.stdout, "tools.py has no docstring"
        assert not (plugin / "imported").exists()

    def test_run_functions_and_groups(self, art: Art, plugin: Path) -> None:
        assert art("greet", "you", PYTHONPATH=str(plugin)).stdout == "hello you\n"
        assert art("tools", "two", PYTHONPATH=str(plugin)).stdout == "two\n"

    def test_that_fail_to_import_break_only_themselves(self, art: Art, plugin: Path) -> None:
        result = art("broken", PYTHONPATH=str(plugin))
        assert result.returncode == 1
        assert "'art broken' (artplug.broken:app) can't be loaded" in result.stderr
        assert "no_such_module" in result.stderr
        assert art("greet", "you", PYTHONPATH=str(plugin)).returncode == 0

    def test_cant_take_a_built_in_name(self, art: Art, plugin: Path) -> None:
        entries = plugin / "artplug-1.0.dist-info" / "entry_points.txt"
        entries.write_text("[art_core.commands]\nruns = artplug.greet:greet\n")
        result = art("runs", PYTHONPATH=str(plugin))
        assert result.returncode == 1
        assert "two commands are called 'art runs'" in result.stderr
        assert "Remove artplug" in result.stderr

    def test_must_name_a_command(self) -> None:
        source = CommandSource("paths", "sys:path", "artplug")
        with pytest.raises(ConfigError, match=r"sys:path is a list"):
            source.load()


def test_interrupted(plugin: Path) -> None:
    process = subprocess.Popen(
        [Path(sys.executable).with_name("art"), "sleep"],
        env={**os.environ, "PYTHONPATH": str(plugin)},
        cwd=plugin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "asleep\n"
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert time.monotonic() - started < 20
