"""Starting, watching and ending the server: real processes and signals, a fake server."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from art_core.engines.protocol import AdapterRef
from art_core.engines.vllm import VllmEngine, VllmOptions
from art_core.engines.vllm.child import ChildServer
from art_core.engines.vllm.command import find_python
from art_core.engines.vllm.failures import explain
from art_core.engines.vllm.gpus import GpuPlan
from art_core.errors import ConfigError, EngineDiedError, EngineStartError, MissingExtraError
from tests.art_core.engines.vllm.conftest import Start
from tests.art_core.engines.vllm.fake_policy import logprob, policy_of
from tests.art_core.engines.vllm.talking import Completed, complete, look, until

BOT = AdapterRef("bot", 3)


def server_process(engine: VllmEngine) -> psutil.Process:
    """vLLM itself, behind the guard."""
    server = engine.server
    assert isinstance(server, ChildServer)
    assert server.process_id is not None
    (process,) = psutil.Process(server.process_id).children()
    return process


def group_is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_killed_server_loses_no_stream(
    start: Start, adapter_folder: Callable[..., Path]
) -> None:
    async with start({"token_seconds": 0.02}) as engine:
        await engine.load_adapter(BOT, adapter_folder("one"))

        async def one(number: int) -> Completed:
            return await complete(engine, [number, 7], adapter=BOT, max_tokens=60, seed=number)

        streams = [asyncio.create_task(one(number)) for number in range(32)]
        await until(lambda: look(engine)["running"] == 32)
        await asyncio.sleep(0.3)
        server_process(engine).kill()
        for number, done in enumerate(await asyncio.gather(*streams)):
            assert (len(done.tokens), done.reason) == (60, "length")
            whole = [number, 7, *done.tokens]
            policy = policy_of(b"one")
            assert done.logprobs == pytest.approx(
                [logprob(policy, whole[:at], whole[at]) for at in range(2, len(whole))]
            )
        # Each went on behind the tokens that it had.
        prompts = [int(line.split()[1]) for line in look(engine)["log"] if "bot@3" in line[:5]]
        assert len(prompts) == 32
        assert min(prompts) > 2


async def test_a_server_that_keeps_ending_is_given_up(start: Start) -> None:
    async with start({"token_seconds": 0.05}, max_restarts=1) as engine:
        stream = asyncio.create_task(complete(engine, [1], max_tokens=90))
        await until(lambda: look(engine)["running"] == 1)
        server_process(engine).kill()
        await until(lambda: engine.server.failure() is None)
        await complete(engine, [1], max_tokens=1)
        server_process(engine).kill()
        with pytest.raises(EngineDiedError, match=r"was killed.*server\.log"):
            await stream
        with pytest.raises(EngineDiedError, match="was killed"):
            await complete(engine, [1])


async def test_closing_ends_the_server_and_what_is_under_way(start: Start) -> None:
    async with start({"token_seconds": 0.05}) as engine:
        group = psutil.Process(server_process(engine).pid).parent()
        assert group is not None
        stream = asyncio.create_task(complete(engine, [1], max_tokens=90))
        await until(lambda: look(engine)["running"] == 1)
        await engine.close()
        with pytest.raises(EngineDiedError, match="closed"):
            await stream
        assert group_is_gone(group.pid)


def start_owner(site: Path, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A process that has started a server, and the server's process group."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(site), str(folder)], stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    with owner.stdout:
        return owner, int(owner.stdout.readline())


async def test_a_server_does_not_outlive_a_killed_owner(fake_site: Path, tmp_path: Path) -> None:
    owner, group = await asyncio.to_thread(start_owner, fake_site, tmp_path)
    assert not group_is_gone(group)
    owner.kill()
    owner.wait()
    await until(lambda: group_is_gone(group))


OWNER = """
import pathlib, sys, time
from art_core.engines.vllm.child import ChildServer
from art_core.engines.vllm.command import Served, command
from art_core.engines.vllm.options import VllmOptions

site, folder = sys.argv[1:]
served = Served(
    model=pathlib.Path("m"), dtype="float32", lora_rank=8, lora_modules=("q_proj",), gpu=None
)
server = ChildServer(
    lambda port: command(sys.executable, port, served, VllmOptions()),
    {"PYTHONPATH": site},
    folder=pathlib.Path(folder),
    port=0,
    start_timeout=10,
)
server.start()
print(server.process_id, flush=True)
time.sleep(60)
"""

LOGS = [
    ("ModuleNotFoundError: No module named 'vllm'", "isn't installed"),
    ("RuntimeError: operator torchvision::nms does not exist", "pip uninstall torchvision"),
    ("OSError: [Errno 98] Address already in use", "port is in use"),
    ("RuntimeError: Failed to infer device type, please set", "no GPU"),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "Lower gpu_memory",
    ),
    (
        "ValueError: Free memory on device cuda:0 (3.1/80.0 GiB) on startup is less than desired "
        "GPU memory utilization (0.9, 72.0 GiB).",
        "too little memory",
    ),
    (
        "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 "
        "GiB KV cache is needed, which is larger than the available KV cache memory (1.00 GiB).",
        "Lower context_length",
    ),
    (
        "ValueError: User-specified max_model_len (9999) is greater than the derived max_model_len",
        "Lower context_length",
    ),
    (
        "ValueError: Model architectures ['XForCausalLM'] are not supported for now.",
        "engine='embedded'",
    ),
    ("api_server.py: error: unrecognized arguments: --frobnicate", "0.19 or newer"),
    (
        "ValueError: Available memory on node 0 (7.6/23.5 GiB) on kv cache allocation is less than "
        "requested memory for kv (9.0 GiB). Decrease --kv-cache-memory-bytes",
        "cpu_kv_gigabytes",
    ),
    ("KeyError: 'surprise'", "status 1 (KeyError: 'surprise')"),
    (
        "(EngineCore pid=7) (Worker pid=8) ERROR 12-01 10:00:00 [core.py:9] KeyError: 'surprise'\n"
        "RuntimeError: Engine core initialization failed. See root cause above.",
        "status 1 (KeyError: 'surprise')",
    ),
]


@pytest.mark.parametrize(("log", "hint"), LOGS)
def test_why_it_did_not_start_is_explained(log: str, hint: str) -> None:
    printed = f"INFO 12-01 loading\nTraceback (most recent call last):\n{log}\nINFO bye\n"
    error = explain(printed, 1, Path("some/server.log"))
    assert hint in str(error)
    assert "some/server.log" in str(error)


async def test_a_start_that_fails_says_why_at_once(start: Start, tmp_path: Path) -> None:
    fake = {"start_error": "RuntimeError: No CUDA GPUs are available"}
    with pytest.raises(EngineStartError, match=r"no GPU.*nvidia-smi.*server\.log"):
        async with start(fake):
            raise AssertionError
    assert "No CUDA GPUs" in (tmp_path / "engine/server.log").read_text()


async def test_a_port_that_is_taken(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(EngineStartError, match=f"port {port} is in use"):
            async with start(port=port):
                raise AssertionError


async def test_the_log_of_the_start_before_is_kept(start: Start, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(EngineStartError):
            async with start({"start_error": "KeyError: 1"}):
                raise AssertionError
    names = sorted(path.name for path in (tmp_path / "engine").iterdir())
    assert names == ["server.log", "server.previous.log"]


def test_where_vllm_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match=r"VllmOptions\(python="):
        find_python(VllmOptions())
    with pytest.raises(ConfigError, match="no such program"):
        find_python(VllmOptions(python=tmp_path / "python"))


async def test_a_server_on_the_trainers_gpu_sleeps_between_requests(start: Start) -> None:
    plan = GpuPlan(gpus=(0,), memory=0.5, sleep=True, reason="test")
    async with start({"token_seconds": 0.02}, gpu=plan) as engine:
        stream = asyncio.create_task(complete(engine, [1], max_tokens=20))
        await until(lambda: look(engine)["running"] == 1)
        await engine.sleep()
        assert (await stream).reason == "length"
        waiting = asyncio.create_task(complete(engine, [2], max_tokens=1))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await engine.wake_up()
        assert (await waiting).tokens
        assert look(engine)["log"][-3:] == ["sleep 0", "wake_up", look(engine)["log"][-1]]


def test_the_guard_passes_an_exit_status_on(tmp_path: Path) -> None:
    server = ChildServer(
        lambda port: [
            sys.executable,
            "-c",
            f"import os, signal; os.kill(os.getpid(), {signal.SIGKILL:d})",
        ],
        dict(os.environ),
        folder=tmp_path,
        port=0,
        start_timeout=10,
    )
    server.start()
    while (failure := server.failure()) is None:
        pass
    assert "was killed" in str(failure)
    server.stop()
