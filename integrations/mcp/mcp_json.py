"""``mcp.json`` as other MCP hosts write it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, cast

from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS

from art_core.errors import ConfigError
from integrations.mcp.servers import HttpServer, Server, StdioServer

_VARIABLE = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}")
_LISTS = ("mcpServers", "servers")
_URLS = ("url", "serverUrl", "httpUrl")


def load_mcp_json(
    path: Path | str,
    only: Collection[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Server]:
    """The servers in an ``mcp.json`` file; those marked ``disabled`` are left out.

    ``${NAME}``, ``${env:NAME}`` and ``${NAME:-default}`` stand for environment variables.

    Args:
        only: names of the servers wanted; None: all.
        environment: None: that of this process.

    Raises:
        ConfigError: the file can't be read, or an entry can't be used; names it.
    """
    entries = _entries(Path(path))
    missing = sorted(set(only or ()) - set(entries))
    if missing:
        raise ConfigError(
            f"{path} has no server {missing[0]!r}", f"It has {', '.join(sorted(entries))}."
        )
    names = [name for name in entries if only is None or name in only]
    expand = _Expansion(os.environ if environment is None else environment)
    servers = [
        _server(name, entries[name], f"{path}, server {name!r}", expand)
        for name in names
        if not (isinstance(entries[name], dict) and entries[name].get("disabled"))
    ]
    if not servers:
        raise ConfigError(f"{path} has no server that is enabled", "Add one, or enable one.")
    return servers


def _entries(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error}", "Check the path.") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}", "Correct it.") from error
    if isinstance(content, dict):
        for key in _LISTS:
            found = cast("dict[str, Any]", content).get(key)
            if isinstance(found, dict):
                return cast("dict[str, Any]", found)
    raise ConfigError(
        f"{path} has no object 'mcpServers'",
        'Write {"mcpServers": {"name": {"command": …, "args": […]}}}.',
    )


class _Expansion:
    """Puts environment variables in, and remembers which."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.used: dict[str, str] = {}

    def __call__(self, text: str, where: str) -> str:
        def value(found: re.Match[str]) -> str:
            name, default = found.group(1), cast("str | None", found.group(2))
            known = self._environment.get(name, default)
            if known is None:
                raise ConfigError(
                    f"{where} uses ${{{name}}}, which isn't set", f"Set {name} in the environment."
                )
            self.used[name] = known
            return known

        return _VARIABLE.sub(value, text)


def _server(name: str, entry: Any, where: str, expand: _Expansion) -> Server:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} is {entry!r:.100}", "It must be an object.")
    fields = cast("dict[str, Any]", entry)
    kind = fields.get("type", fields.get("transport"))
    if kind == "sse":
        raise ConfigError(
            f"{where} is of the type 'sse', which MCP gave up in 2025",
            "Use the server's streamable HTTP endpoint.",
        )
    url = next((fields[key] for key in _URLS if key in fields), None)
    if url is not None:
        headers = _texts(fields.get("headers", {}), f"{where}, headers", expand)
        return HttpServer(name=name, url=_text(url, f"{where}, url", expand), headers=headers)
    if "command" not in fields:
        raise ConfigError(f"{where} has neither command nor url", "Write one of them.")
    return _stdio(name, fields, where, expand)


def _stdio(name: str, fields: dict[str, Any], where: str, expand: _Expansion) -> StdioServer:
    args = fields.get("args", [])
    if not isinstance(args, list):
        raise ConfigError(f"{where}, args is {args!r:.100}", "It must be a list of texts.")
    env = _texts(fields.get("env", {}), f"{where}, env", expand)
    expand.used = {}
    command = _text(fields["command"], f"{where}, command", expand)
    words = [_text(word, f"{where}, args", expand) for word in cast("list[Any]", args)]
    cwd = fields.get("cwd")
    return StdioServer(
        name=name,
        command=command,
        args=tuple(words),
        env=env,
        hidden={
            name: value
            for name, value in expand.used.items()
            if name not in DEFAULT_INHERITED_ENV_VARS
        },
        cwd=None if cwd is None else Path(_text(cwd, f"{where}, cwd", expand)),
    )


def _text(value: Any, where: str, expand: _Expansion) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where} is {value!r:.100}", "It must be text.")
    return expand(value, where)


def _texts(value: Any, where: str, expand: _Expansion) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is no object", "It must be an object of texts.")
    found = cast("dict[str, Any]", value)
    # The value may be a secret: the error must not show it.
    for name, one in found.items():
        if not isinstance(one, str):
            raise ConfigError(f"{where}.{name} is of the type {type(one).__name__}", "Quote it.")
    return {name: expand(one, f"{where}.{name}") for name, one in found.items()}
