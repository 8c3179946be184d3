"""The servers and functions that a command line names."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from art_core.errors import ConfigError
from integrations.mcp.mcp_json import load_mcp_json
from integrations.mcp.pool import Isolation
from integrations.mcp.servers import HttpServer, Server, StdioServer


@dataclass(frozen=True, slots=True)
class Choice:
    """As on the command line."""

    command: str | None
    url: str | None
    config: Path | None
    only: Sequence[str] | None
    env: Sequence[str] | None
    header: Sequence[str] | None

    def servers(self) -> list[Server]:
        """The servers that are meant.

        Raises:
            ConfigError: none or several ways are used, or a value can't be.
        """
        given = [one for one in (self.command, self.url, self.config) if one is not None]
        if len(given) != 1:
            raise ConfigError(
                f"{len(given) or 'none'} of --server, --url and --config are given",
                "Give one of them.",
            )
        _check("--env", self.env, "--server", self.command)
        _check("--header", self.header, "--url", self.url)
        _check("--only", self.only, "--config", self.config)
        if self.command is not None:
            return [
                StdioServer.from_command(self.command, env=dict(map(_variable, self.env or ())))
            ]
        if self.url is not None:
            return [HttpServer(url=self.url, headers=dict(map(_header, self.header or ())))]
        return load_mcp_json(cast("Path", self.config), self.only or None)


def _check(option: str, values: Sequence[str] | None, goes_with: str, other: object) -> None:
    if values and other is None:
        raise ConfigError(f"{option} is given without {goes_with}", "They belong together.")


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        if name not in os.environ:
            raise ConfigError(f"--env {name}: it isn't set", f"Set {name}, or write {name}=value.")
        value = os.environ[name]
    return name, value


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:  # what was given may be the secret
        raise ConfigError("a --header has no colon", "Write it as 'Name: value'.")
    return name.strip(), value.strip()


def check_isolation(value: str) -> Isolation:
    """``value`` as an isolation.

    Raises:
        ConfigError: it's none.
    """
    if value not in get_args(Isolation):
        raise ConfigError(
            f"isolation is {value!r}", f"Choose one of {', '.join(get_args(Isolation))}."
        )
    return cast("Isolation", value)


def imported(what: str, where: str) -> Callable[..., Any]:
    """The function ``module:function`` of the current folder or of an installed package.

    Raises:
        ConfigError: there is none.
    """
    remedy = "Write module:function, of a module in this folder or an installed one."
    module, _, function = where.partition(":")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)  # as `python -m` has it
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{what} {where!r} can't be imported: {error}", remedy) from error
    finally:
        sys.path.remove(folder)
    if not callable(found):
        raise ConfigError(f"{what} is {where!r}, which is no function", remedy)
    return found
