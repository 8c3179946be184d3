"""The command as users start it, and a real run for it to read."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from art_core.demo.report import DemoReport
from art_core.demo.run import DemoSettings, run_demo

ART = Path(sys.executable).with_name("art")

RunArt = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def art(tmp_path: Path) -> RunArt:
    """Runs ``art`` in an empty folder, or in ``cwd``, with ``environment`` added."""

    def run(
        *arguments: str, cwd: Path = tmp_path, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ART, *arguments],
            cwd=cwd,
            env={**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def demo_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="session")
def demo_report(demo_root: Path, tiny_model_folder: Path) -> DemoReport:
    """A finished demo of two steps with a tiny random model, in ``demo_root``."""
    settings = DemoSettings(root=demo_root, steps=2, held_out=8, base_model=str(tiny_model_folder))
    return asyncio.run(run_demo(settings))
