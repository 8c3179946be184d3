"""Fixtures of the LangGraph tests: a scripted provider, and a guard against the network."""

from __future__ import annotations

import socket
from collections.abc import Generator
from typing import Any

import pytest

from art_core.rollouts import TrainableModel
from tests.integrations.langgraph.provider import Provider, running_provider
from tests.integrations.langgraph.served import ScriptedBackend

Policy = TrainableModel[Any]

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@pytest.fixture
def provider() -> Generator[Provider]:
    with running_provider() as server:
        yield server


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> Generator[list[str]]:
    """Nothing may be looked up or connected to beyond loopback; an attempt fails the test."""
    attempts: list[str] = []
    resolve, connect = socket.getaddrinfo, socket.socket.connect

    def guarded_resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in LOOPBACK:
            attempts.append(str(host))
            raise socket.gaierror(f"the test tried to reach {host!r}")
        return resolve(host, *args, **kwargs)

    def guarded_connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in LOOPBACK:
            attempts.append(str(address))
            raise OSError(f"the test tried to reach {address!r}")
        connect(self, address)

    monkeypatch.setattr(socket, "getaddrinfo", guarded_resolve)
    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    yield attempts
    assert attempts == []


@pytest.fixture(scope="module")
def scripted_backend(tmp_path_factory: pytest.TempPathFactory) -> Generator[ScriptedBackend]:
    backend = ScriptedBackend(tmp_path_factory.mktemp("records"))
    yield backend
    backend.stop()


@pytest.fixture(scope="module")
def policy(scripted_backend: ScriptedBackend) -> Policy:
    """A registered policy that answers by script."""
    return scripted_backend.new_policy("policy")


@pytest.fixture(scope="module")
def writer(scripted_backend: ScriptedBackend) -> Policy:
    """A second one."""
    return scripted_backend.new_policy("writer")
