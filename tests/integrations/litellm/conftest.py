"""Fixtures of the LiteLLM tests: litellm with its own price list, and a policy by script."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

from art_core.config import CaptureConfig
from art_core.rollouts import TrainableModel
from tests.integrations.langgraph.provider import Provider, running_provider
from tests.integrations.langgraph.served import ScriptedBackend

# Read when litellm is imported, which tests of other packages may do first.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

Policy = TrainableModel[Any]


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Generator[ScriptedBackend]:
    backend = ScriptedBackend(tmp_path_factory.mktemp("records"))
    yield backend
    backend.stop()


@pytest.fixture(scope="module")
def policy(backend: ScriptedBackend) -> Policy:
    """A policy that answers by script; other models keep their own hosts."""
    model = backend.new_policy("bot")
    model.capture = CaptureConfig(hosts=())
    return model


@pytest.fixture
def provider() -> Generator[Provider]:
    """Somebody else's model."""
    with running_provider() as server:
        yield server


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    import litellm

    from integrations.litellm import register

    monkeypatch.delenv("ART_BASE_URL", raising=False)
    monkeypatch.delenv("ART_API_KEY", raising=False)
    monkeypatch.setattr(litellm, "suppress_debug_info", True)
    before = litellm.custom_provider_map
    register()
    yield
    litellm.custom_provider_map = before
