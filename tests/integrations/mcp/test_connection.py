"""Connecting to servers, and what becomes of those that misbehave."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from art_core.errors import ToolServerDiedError, ToolServerError, ToolServerStartError
from integrations.mcp import (
    Connection,
    HttpServer,
    Server,
    StdioServer,
    Timeouts,
    Toolbox,
    connect,
    tools_as_openai,
)
from tests.integrations.mcp.conftest import MakeBad

QUICK = Timeouts(probe=0.5, start=20)


@asynccontextmanager
async def connected(server: Server, timeouts: Timeouts = QUICK) -> AsyncGenerator[Connection]:
    connection = await connect(server, timeouts=timeouts)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def toolbox(server: Server, timeout: float = 20) -> AsyncGenerator[Toolbox]:
    async with connected(server) as connection:
        box = Toolbox([connection], timeout=timeout)
        await box.refresh()
        yield box


async def test_a_server_of_the_newest_protocol(time_server: StdioServer) -> None:
    async with connected(time_server, Timeouts()) as connection:
        assert connection.client.protocol_version == "2026-07-28"
        tools = await tools_as_openai(connection.client)
    names = [tool["function"]["name"] for tool in tools]  # type: ignore[index]
    assert names == ["get_current_time", "convert_time"]


async def test_a_server_that_ignores_the_question_is_started_again(
    bad_server: MakeBad, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    async with connected(bad_server("never_answers", env={"STARTS": str(starts)})) as connection:
        assert connection.mode == "legacy"
        assert connection.client.protocol_version == "2025-11-25"
    assert starts.read_text().count("started") == 2


async def test_a_server_that_refuses_the_question_is_not(
    bad_server: MakeBad, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    async with connected(bad_server(env={"STARTS": str(starts)}), Timeouts(probe=20)) as connection:
        assert connection.mode == "auto"
    assert starts.read_text().count("started") == 1


async def test_closing_leaves_no_process_behind(bad_server: MakeBad) -> None:
    async with toolbox(bad_server()) as box:
        call = await box.call("env", "{}")
        assert not call.is_error
        process = _child_processes()
        assert process
    assert not process & _child_processes()


def _child_processes() -> set[int]:
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return {int(child) for child in children}


async def test_a_command_that_isnt_there_is_named() -> None:
    with pytest.raises(ToolServerStartError, match=r"server \(no-such-command\).*FileNotFound"):
        await connect(StdioServer(command="no-such-command"))


async def test_a_server_that_dies_at_once_shows_its_last_words_without_the_secret(
    bad_server: MakeBad,
) -> None:
    with pytest.raises(ToolServerStartError) as caught:
        await connect(bad_server("dies_at_start", env={"API_KEY": "hunter2"}), timeouts=QUICK)
    assert "no key [secret API_KEY]" in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_nobody_at_a_url_is_an_error_that_hides_its_key() -> None:
    server = HttpServer(url="http://user:pass@127.0.0.1:9/mcp?key=abcdef", headers={"X": "yyyyyy"})
    with pytest.raises(ToolServerStartError) as caught:
        await connect(server, timeouts=QUICK)
    assert "http://127.0.0.1:9" in str(caught.value)
    assert not re.search("pass|abcdef|yyyyyy", str(caught.value))


async def test_what_is_printed_to_stdout_doesnt_disturb(bad_server: MakeBad) -> None:
    async with toolbox(bad_server("chatty")) as box:
        assert (await box.call("works", "")).result == "ok"


async def test_slow_pages_and_two_hundred_tools(bad_server: MakeBad) -> None:
    async with toolbox(bad_server("slow_pages")) as box:
        names = [str(tool["function"]["name"]) for tool in box.tools]  # type: ignore[index]
    assert len(names) == len(set(names)) == 220
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert "dotted_name_here" in names


async def test_endless_pages_are_an_error(bad_server: MakeBad) -> None:
    async with connected(bad_server("endless_pages")) as connection:
        with pytest.raises(ToolServerError, match="tools/list comes to no end"):
            await Toolbox([connection]).refresh()


async def test_a_name_listed_twice_counts_once(bad_server: MakeBad) -> None:
    async with toolbox(bad_server()) as box:
        twice = [tool for tool in box.tools if tool["function"]["name"] == "twice"]  # type: ignore[index]
    assert [tool["function"]["description"] for tool in twice] == ["first"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("fails", "Error: it broke"),
        ("refuses", "Error: bad arguments"),
        ("nonsense", "Error: .*"),
        ("wrong_output", "Error: .*seven.*"),
        ("no_such_tool", "Error: there is no tool 'no_such_tool'; there are: works, .*"),
    ],
)
async def test_errors_in_all_forms_are_results(bad_server: MakeBad, tool: str, said: str) -> None:
    async with toolbox(bad_server()) as box:
        call = await box.call(tool, "{}")
        assert call.is_error
        assert re.fullmatch(said, call.result, re.DOTALL)
        assert (await box.call("works", "{}")).result == "ok"


async def test_an_error_that_isnt_marked_is_passed_on_as_it_is(bad_server: MakeBad) -> None:
    async with toolbox(bad_server()) as box:
        call = await box.call("lies", "{}")
    assert (call.result, call.is_error) == ("Error: there is no such thing", False)


async def test_a_tool_that_hangs_is_given_up_and_its_progress_told(bad_server: MakeBad) -> None:
    async with toolbox(bad_server(), timeout=0.5) as box:
        call = await box.call("hangs", "{}")
        assert call.result == "Error: no result within 0.5 s; it had got to 3 of 9 (still here)"
        assert (await box.call("works", "{}")).result == "ok"


async def test_a_huge_result_is_cut_and_says_so(bad_server: MakeBad) -> None:
    async with toolbox(bad_server()) as box:
        call = await box.call("huge", "{}")
    assert call.result.startswith("x" * 8_000 + "\n")
    assert call.result.endswith("[cut: 9,992,000 of 10,000,000 characters not shown]")


async def test_invalid_utf8_is_replaced(bad_server: MakeBad) -> None:
    async with toolbox(bad_server()) as box:
        assert (await box.call("invalid_utf8", "{}")).result == "caf\ufffd\ufffd !"


@pytest.mark.parametrize(
    ("tool", "arguments", "valid"),
    [
        ("refs", '{"at": {"x": 1}}', True),
        ("refs", '{"at": {"x": "one"}}', False),
        ("refs", "{}", False),
        ("enum", '{"id": "item-4999"}', True),
        ("enum", '{"id": "item-5000"}', False),
        ("broken_schema", '{"a": 1}', True),
        ("unresolvable", "{}", True),
        ("works", '{"any": "thing"}', True),
        ("works", "", True),
        ("works", "[1]", False),
        ("works", '{"a": ', False),
        ("works", "{" * 100_000, False),
        ("nowhere", "{}", False),
    ],
)
async def test_whether_a_call_is_valid(
    bad_server: MakeBad, tool: str, arguments: str, valid: bool
) -> None:
    async with toolbox(bad_server()) as box:
        assert (await box.call(tool, arguments)).valid is valid


async def test_secrets_dont_come_back(bad_server: MakeBad) -> None:
    secret = 'sk-"quoted"/secret+1'
    server = bad_server(env={"API_KEY": secret, "SHOWN": "shown!"}, public_env={"SHOWN"})
    async with toolbox(server) as box:
        call = await box.call("env", "{}")
        instructions = box.connections[0].redact(box.connections[0].client.instructions or "")
    assert "[secret API_KEY]" in call.result
    assert "shown!" in call.result
    assert "quoted" not in call.result
    assert instructions == "My key is [secret API_KEY]."
    assert secret not in repr(server)
    assert secret not in server.model_dump_json()


async def test_tools_that_change_are_asked_for_again(bad_server: MakeBad) -> None:
    async with toolbox(bad_server()) as box:
        await box.call("grows", "{}")
        await box.refresh_if_changed()
        assert (await box.call("grown", "{}")).result == "ok"


async def test_a_request_for_sampling_is_refused_in_the_open(bad_server: MakeBad) -> None:
    async with toolbox(bad_server()) as box:
        assert "not supported" in (await box.call("samples", "{}")).result.lower()


async def test_death_is_an_error_with_its_last_words(bad_server: MakeBad) -> None:
    async with toolbox(bad_server()) as box:
        with pytest.raises(ToolServerDiedError, match="I can't go on"):
            await box.call("dies", "{}")
        with pytest.raises(ToolServerDiedError):
            await box.call("works", "{}")


async def test_calls_at_once_over_one_connection(bad_server: MakeBad) -> None:
    async with toolbox(bad_server()) as box:
        calls = await asyncio.gather(*(box.call("count", "{}") for _ in range(20)))
    assert sorted(int(call.result) for call in calls) == list(range(1, 21))
