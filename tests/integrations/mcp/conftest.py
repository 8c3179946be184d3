"""Fixtures of the MCP tests: servers that are really started."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from art_core.rollouts import TrainableModel
from integrations.mcp import StdioServer
from tests.integrations.mcp.scripted import AgentBackend

BAD = Path(__file__).with_name("bad_server.py")
HTTP = Path(__file__).with_name("http_server.py")
MakeBad = Callable[..., StdioServer]


@pytest.fixture
def bad_server() -> MakeBad:
    """``bad_server("slow_pages", env=…)``: the misbehaving server, in its own process."""

    def make(*behaviour: str, **fields: Any) -> StdioServer:
        return StdioServer(command=sys.executable, args=(str(BAD), *behaviour), **fields)

    return make


@pytest.fixture
def time_server() -> StdioServer:
    """mcp-server-time, which speaks the protocol of 2026-07-28."""
    return StdioServer(command=str(Path(sys.executable).with_name("mcp-server-time")), name="time")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Generator[TrainableModel[Any]]:
    """Does what its task says; see `scripted`."""
    backend = AgentBackend(tmp_path_factory.mktemp("records"))
    yield backend.new_policy("policy")
    backend.stop()


class HttpProcess:
    """A server of the official SDK over streamable HTTP, which can be started again."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as found:
            self._port = found.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/mcp"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HTTP), str(self._port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(400):
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self._port)),
            ):
                return
            time.sleep(0.05)
        raise TimeoutError(f"no server on port {self._port}")

    def wait(self) -> None:
        """Until it dies."""
        self._process.wait(timeout=60)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def http_process() -> Generator[HttpProcess]:
    process = HttpProcess()
    yield process
    process.stop()


@pytest.fixture
def http_server(http_process: HttpProcess) -> str:
    """Its URL; among its tools is ``authorization``."""
    return http_process.url
