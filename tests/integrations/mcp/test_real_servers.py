"""Servers that others wrote: from PyPI, and (long) from npm and for old protocol versions."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.client.context import ClientRequestContext
from mcp.types import CreateMessageResult, ElicitResult, TextContent

from integrations.mcp import (
    Answers,
    HttpServer,
    ServerPool,
    StdioServer,
    Timeouts,
    Toolbox,
    connect,
)
from integrations.mcp.inspecting import look_at

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "art-core-test-servers"
NPM = "2026.8.31"
SERVERS = ("everything", "filesystem")


def npm_server(name: str, *args: str) -> StdioServer:
    """One of the reference servers, installed once per machine."""
    command = CACHE / "node_modules" / ".bin" / f"mcp-server-{name}"
    if not command.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        wanted = [f"@modelcontextprotocol/server-{one}@{NPM}" for one in SERVERS]
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(CACHE), *wanted]
        subprocess.run(install, check=True, timeout=300)
    return StdioServer(command=str(command), args=args, name=name)


def old_server(*args: str) -> StdioServer:
    """mcp-server-sqlite, in an environment of its own with the SDK as it was before 2026."""
    folder = CACHE / "sqlite"
    if not (folder / "bin" / "mcp-server-sqlite").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q"]
        subprocess.run(
            [*pip, "mcp-server-sqlite", "mcp==1.6.0", "pydantic==2.11.10"], check=True, timeout=300
        )
    return StdioServer(command=str(folder / "bin" / "mcp-server-sqlite"), args=args, name="sqlite")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "First words"], check=True)
    return tmp_path


async def test_git_on_a_repository(repository: Path) -> None:
    command = str(Path(sys.executable).with_name("mcp-server-git"))
    async with ServerPool(StdioServer(command=command)) as pool, pool.lease() as workspace:
        box = Toolbox(workspace.connections)
        await box.refresh()
        call = await box.call("git_log", f'{{"repo_path": "{repository}"}}')
    assert "First words" in call.result


async def test_http_with_a_header_that_stays_secret(http_server: str) -> None:
    server = HttpServer(url=http_server, headers={"Authorization": "Bearer sk-very-secret"})
    async with ServerPool(server, isolation="shared") as pool:
        agents = [_headers(pool) for _ in range(4)]
        assert set(await asyncio.gather(*agents)) == {"[secret Authorization]"}


async def _headers(pool: ServerPool) -> str:
    async with pool.lease() as workspace:
        box = Toolbox(workspace.connections)
        await box.refresh()
        return (await box.call("authorization", "{}")).result


@pytest.mark.long
async def test_everything() -> None:
    server = npm_server("everything").model_copy(update={"env": {"KEY": "sk-very-secret"}})
    view = await look_at([server])
    assert len(view.servers[0].resources) == 9
    assert view.servers[0].prompts[0]["name"] == "simple-prompt"
    async with ServerPool(server) as pool, pool.lease() as workspace:
        box = Toolbox(workspace.connections)
        await box.refresh()

        async def result(name: str, arguments: str = "{}") -> str:
            return (await box.call(name, arguments)).result

        assert await result("get-sum", '{"a": 2, "b": 3}') == "The sum of 2 and 3 is 5."
        assert "image/png, " in await result("get-tiny-image")
        assert "[secret KEY]" in await result("get-env")
        structured = await result("get-structured-content", '{"location": "Chicago"}')
        assert structured.count("temperature") == 1
        assert "[resource demo://" in await result("get-resource-links", '{"count": 2}')
        assert "Error" in await result("get-sum", '{"a": "two"}')


@pytest.mark.long
async def test_filesystem_in_a_sandbox(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("buy milk")
    server = npm_server("filesystem", "{sandbox}")
    async with ServerPool(server, sandbox=tmp_path) as pool, pool.lease() as workspace:
        assert workspace.sandbox is not None
        box = Toolbox(workspace.connections)
        await box.refresh()
        read = await box.call("read_text_file", '{"path": "notes.txt"}')
        assert read.result == "buy milk"
        await box.call("write_file", '{"path": "notes.txt", "content": "done"}')
        assert (workspace.sandbox / "notes.txt").read_text() == "done"
        outside = await box.call("read_text_file", '{"path": "/etc/passwd"}')
        assert outside.is_error
    assert (tmp_path / "notes.txt").read_text() == "buy milk"


@pytest.mark.long
async def test_an_old_protocol_and_a_database(tmp_path: Path) -> None:
    server = old_server("--db-path", str(tmp_path / "shop.db"))
    connection = await connect(server, timeouts=Timeouts(probe=3))
    try:
        assert connection.client.protocol_version == "2024-11-05"
        box = Toolbox([connection])
        await box.refresh()
        for name, query in (
            ("create_table", "CREATE TABLE t (n INTEGER)"),
            ("write_query", "INSERT INTO t VALUES (41), (42)"),
        ):
            assert not (await box.call(name, _query(query))).is_error
        found = await box.call("read_query", _query("SELECT max(n) AS most FROM t"))
        assert "42" in found.result
    finally:
        await connection.close()


def _query(text: str) -> str:
    return f'{{"query": "{text}"}}'


@pytest.mark.long
async def test_sampling_and_elicitation_are_answered_where_there_is_an_answer() -> None:
    async def sample(context: ClientRequestContext, params: Any) -> CreateMessageResult:
        content = TextContent(type="text", text="a sampled text")
        return CreateMessageResult(role="assistant", content=content, model="none")

    async def elicit(context: ClientRequestContext, params: Any) -> ElicitResult:
        return ElicitResult(action="decline")

    answers = Answers(sampling=sample, elicitation=elicit)
    pool = ServerPool(npm_server("everything"), answers=answers)
    async with pool, pool.lease() as workspace:
        box = Toolbox(workspace.connections)
        await box.refresh()
        asked = await box.call("trigger-sampling-request", '{"prompt": "Say it."}')
        declined = await box.call("trigger-elicitation-request", "{}")
    assert "a sampled text" in asked.result
    assert "decline" in declined.result
