"""Engines on the fake server, as a child and as one that runs already."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from art_core.engines.vllm import VllmEngine, VllmOptions
from art_core.engines.vllm.command import Served
from art_core.engines.vllm.engine import BaseFacts
from art_core.engines.vllm.gpus import GpuPlan
from tests.art_core.engines.vllm.fake_policy import CONTEXT, VOCAB

HERE = Path(__file__).parent
BASE = BaseFacts(
    name="tiny", vocab_size=VOCAB, context_length=CONTEXT, dtype="float32", device="cpu"
)


@pytest.fixture(scope="session")
def fake_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that, on the path, makes ``python -m vllm.entrypoints…`` start the fake."""
    site = tmp_path_factory.mktemp("site")
    package = site / "vllm/entrypoints/openai"
    package.mkdir(parents=True)
    source = (
        f"import runpy\nrunpy.run_path({str(HERE / 'fake_server.py')!r}, run_name='__main__')\n"
    )
    (package / "api_server.py").write_text(source)
    return site


@pytest.fixture
def fake_options(fake_site: Path) -> Callable[..., VllmOptions]:
    """Options that start the fake; ``fake`` are its settings."""

    def make(fake: dict[str, Any] | None = None, **fields: Any) -> VllmOptions:
        variables = {"PYTHONPATH": str(fake_site), "FAKE_VLLM": json.dumps(fake or {})}
        return VllmOptions(python=Path(sys.executable), environment=variables, **fields)

    return make


Start = Callable[..., Any]


@pytest.fixture
def start(fake_options: Callable[..., VllmOptions], tmp_path: Path) -> Start:
    """``async with start(…) as engine``: on a fake server started by the engine."""

    @asynccontextmanager
    async def make(
        fake: dict[str, Any] | None = None, gpu: GpuPlan | None = None, **fields: Any
    ) -> AsyncGenerator[VllmEngine]:
        served = Served(
            model=tmp_path / "base",
            dtype="float32",
            lora_rank=8,
            lora_modules=("q_proj", "v_proj"),
            gpu=gpu,
        )
        options = fake_options(fake, **fields)
        engine = VllmEngine.start_server(BASE, served, options, folder=tmp_path / "engine")
        try:
            yield engine
        finally:
            await engine.close()

    return make


class Running:
    """A fake server that somebody else started, on a port that stays the same."""

    def __init__(self, site: Path) -> None:
        self._site = site
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        *arguments: str,
        fake: dict[str, Any] | None = None,
        runtime_lora: bool = True,
        key: str = "",
    ) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._site),
            "FAKE_VLLM": json.dumps(fake or {}),
            "VLLM_API_KEY": key,
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True" if runtime_lora else "",
        }
        line = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", "tiny"]
        line += ["--host", "127.0.0.1", "--port", str(self.port)]
        line += arguments or ("--logprobs-mode", "processed_logprobs")
        self._process = subprocess.Popen(line, env=environment)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                httpx.get(f"{self.url}/health")
                return
            except httpx.TransportError:
                time.sleep(0.05)
        raise TimeoutError(self.url)

    def look(self) -> dict[str, Any]:
        return httpx.get(f"{self.url}/look").json()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def elsewhere(fake_site: Path) -> Iterator[Running]:
    running = Running(fake_site)
    yield running
    running.kill()


@pytest.fixture
def adapter_folder(tmp_path: Path) -> Callable[..., Path]:
    """Makes what looks like an adapter; its bytes are its policy."""

    def make(name: str, rank: int = 8) -> Path:
        folder = tmp_path / "checkpoints" / name
        folder.mkdir(parents=True)
        (folder / "adapter_config.json").write_text(json.dumps({"r": rank}))
        (folder / "adapter_model.safetensors").write_bytes(name.encode())
        return folder

    return make
