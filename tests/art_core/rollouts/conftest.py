from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from art_core.rollouts import TrainableModel

# Test modules and the scripts that they start import the same helper by name.
_spec = importlib.util.spec_from_file_location(
    "scripted_backend", Path(__file__).with_name("scripted_backend.py")
)
assert _spec is not None
assert _spec.loader is not None
sys.modules["scripted_backend"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules["scripted_backend"])

if TYPE_CHECKING:
    from scripted_backend import ScriptedBackend


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncGenerator[ScriptedBackend]:
    async with sys.modules["scripted_backend"].ScriptedBackend(tmp_path / ".art") as scripted:
        yield scripted


@pytest.fixture
async def model(backend: ScriptedBackend) -> TrainableModel[Any]:
    """A registered model."""
    model = TrainableModel(name="bot", project="shop", base_model="tiny")
    await model.register(backend)
    return model


@pytest.fixture(autouse=True)
def no_real_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that isn't captured fails at once instead of leaving this machine."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-the-users-own")
