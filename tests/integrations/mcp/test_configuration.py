"""mcp.json, servers, secrets, and what a command line names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from art_core.errors import ConfigError, ScenarioError
from integrations.mcp import HttpServer, StdioServer, load_mcp_json
from integrations.mcp.choosing import Choice, imported
from integrations.mcp.making import read_tasks
from integrations.mcp.redaction import Redactor


def written(folder: Path, content: Any) -> Path:
    path = folder / "mcp.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_mcp_json_as_other_hosts_use_it(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "mcpServers": {
                "local": {
                    "command": "uvx",
                    "args": ["server", "--key=${KEY}", "${HOME}/files"],
                    "env": {"TOKEN": "${env:TOKEN}", "LEVEL": "${LEVEL:-debug}"},
                },
                "remote": {
                    "type": "http",
                    "url": "https://example.org/mcp",
                    "headers": {"Authorization": "Bearer ${TOKEN}"},
                },
                "off": {"command": "x", "disabled": True},
            }
        },
    )
    environment = {"KEY": "the-key", "TOKEN": "the-token", "HOME": "/home/me"}
    local, remote = load_mcp_json(path, environment=environment)
    assert isinstance(local, StdioServer)
    assert local.args == ("server", "--key=the-key", "/home/me/files")
    assert local.env == {"TOKEN": "the-token", "LEVEL": "debug"}
    assert local.secrets == {"KEY": "the-key", "TOKEN": "the-token", "LEVEL": "debug"}
    assert isinstance(remote, HttpServer)
    assert remote.secrets["Authorization Bearer"] == "the-token"
    assert [one.name for one in load_mcp_json(path, ["local"], environment)] == ["local"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ([], "no object 'mcpServers'"),
        ({"mcpServers": {}}, "no server that is enabled"),
        ({"mcpServers": {"a": 1}}, "server 'a' is 1"),
        ({"mcpServers": {"a": {}}}, "neither command nor url"),
        ({"mcpServers": {"a": {"command": 1}}}, "command is 1"),
        ({"mcpServers": {"a": {"command": "x", "args": "y"}}}, "args is 'y'"),
        ({"mcpServers": {"a": {"command": "x", "env": {"N": 12345}}}}, "env.N is of the type int"),
        ({"mcpServers": {"a": {"command": "${NOPE}"}}}, r"uses \$\{NOPE\}, which isn't set"),
        ({"mcpServers": {"a": {"type": "sse", "url": "http://x"}}}, "type 'sse'"),
        ({"mcpServers": {"a b/..": {"command": "x"}}}, "name is 'a b/..'"),
        ({"mcpServers": {"a": {"url": "ftp://user:secret@x"}}}, "http:// or https://"),
    ],
)
def test_what_is_wrong_with_mcp_json_is_named(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load_mcp_json(written(tmp_path, content), environment={})
    assert "secret" not in str(caught.value)
    assert "12345" not in str(caught.value)


def test_a_server_that_isnt_in_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, {"mcpServers": {"a": {"command": "x"}}})
    with pytest.raises(ConfigError, match=r"no server 'b'.*It has a"):
        load_mcp_json(path, ["b"])


def test_secrets_of_a_url() -> None:
    server = HttpServer(url="https://u:pa55word@h.example/mcp?api_key=k-12345&x=1")
    said = Redactor(server.secrets)("pa55word, k-12345, x=1")
    assert said == "[secret url password], [secret url api_key], x=1"
    assert "pa55word" not in repr(server) + str(server)
    assert str(server) == "server (https://h.example)"


def test_a_secret_in_every_spelling_and_nothing_else() -> None:
    redact = Redactor({"K": 'a"b/c+d é', "SHORT": "1", "WORD": "able"})
    for spelled in (
        'a"b/c+d é',
        json.dumps('a"b/c+d é'),
        "a%22b%2Fc%2Bd%20%C3%A9",
        "YSJiL2MrZCDDqQ==",
    ):
        assert "[secret K]" in redact(f"<{spelled}>")
    assert redact("1 table able") == "1 table [secret WORD]"
    assert redact.json({"able": ["able", 1, None]}) == {"[secret WORD]": ["[secret WORD]", 1, None]}


@pytest.mark.parametrize("env", [{"K": 98765}, {"K": b"98765"}, {"K": None}])
def test_a_secret_of_a_wrong_type_isnt_shown(env: Any) -> None:
    with pytest.raises(ConfigError, match="is no text") as caught:
        StdioServer(command="x", env=env)
    assert "98765" not in str(caught.value)


@pytest.mark.parametrize("line", ["", "   ", "a 'b"])
def test_commands_that_are_none(line: str) -> None:
    with pytest.raises(ConfigError, match="server command"):
        StdioServer.from_command(line)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (Choice(None, None, None, None, None, None), "none of --server"),
        (Choice("a", "http://b", None, None, None, None), "2 of --server"),
        (Choice("a", None, None, None, ["NOT_SET_ANYWHERE"], None), "it isn't set"),
        (Choice("a", None, None, None, None, ["X: y"]), "--header is given without --url"),
        (Choice(None, "http://b", None, None, None, ["sk-secret"]), "a --header has no colon"),
    ],
)
def test_choices_that_are_none(choice: Choice, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        choice.servers()
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize("where", ["nowhere:x", "json:nothing", "json", ":x", "json:__doc__"])
def test_functions_that_are_none(where: str) -> None:
    with pytest.raises(ConfigError, match="reward"):
        imported("reward", where)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has 0 scenarios"),
        ('{"task": "a"}', "has 1 scenarios"),
        ('{"task": "a"}\n{"task": "a"}', "line 2 repeats"),
        ('{"task": "a"}\n[]', "line 2 has no text called task"),
        ('{"task": "a"}\n{"task": ""}', "line 2 has no text called task"),
        ('{"task": "a"}\n{', "line 2 is not JSON"),
    ],
)
def test_scenario_files_that_are_none(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=said):
        read_tasks(path)
