"""Which MCP server to use: a command to start, or a URL."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self, cast
from urllib.parse import parse_qsl, urlsplit

from pydantic import Field, field_validator, model_validator

from art_core.config import Config
from art_core.errors import ConfigError
from art_core.runs.names import check_name

SANDBOX = "{sandbox}"
"""Stands for the sandbox folder's path in arguments, environment and working folder."""

Secrets = Annotated[Mapping[str, str], Field(repr=False, exclude=True)]
"""Texts by name, which are neither printed nor written down."""


class _Named(Config):
    name: str = "server"
    """Tells servers apart; in front of their tools' names where there are several."""

    @field_validator("name")
    @classmethod
    def _name_is_safe(cls, name: str) -> str:
        return check_name("name", name)

    @model_validator(mode="before")
    @classmethod
    def _secrets_are_texts(cls, fields: Any) -> Any:
        """Checked here, since pydantic's own error would show the value."""
        for field in ("env", "headers", "hidden"):
            values: Any = cast("dict[str, Any]", fields).get(field, {})
            for name, value in values.items():
                if not isinstance(value, str):
                    raise ValueError(  # noqa: TRY004  (pydantic takes no TypeError)
                        f"{field}[{name!r}] is no text ({type(value).__name__})"
                    )
        return fields


class StdioServer(_Named):
    """A server that is started as a process and spoken to over its stdin and stdout.

    Of this process's environment it gets only what the SDK passes on (``PATH``, ``HOME``
    and the like) and ``env``.
    """

    command: Annotated[str, Field(min_length=1)]
    args: tuple[str, ...] = ()
    env: Secrets = {}
    """Secret, all of it: values never reach records, logs and scenarios."""
    public_env: frozenset[str] = frozenset()
    """Names in ``env`` whose values aren't secret: a time zone, say, that tools speak of."""
    hidden: Secrets = {}
    """Further secret values, such as a key among the arguments, by any name."""
    cwd: Path | None = None
    """None: the sandbox, or where this process is."""

    @classmethod
    def from_command(cls, line: str, **fields: Any) -> StdioServer:
        """A server by its command line, split as a POSIX shell would.

        Raises:
            ConfigError: it's empty, or a quote isn't closed.
        """
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise ConfigError(f"server command {line!r}: {error}", "Close the quote.") from error
        if not words:
            raise ConfigError("the server command is empty", "Write how the server is started.")
        return cls(command=words[0], args=tuple(words[1:]), **fields)

    @property
    def secrets(self) -> dict[str, str]:
        return {
            name: value
            for name, value in {**self.hidden, **self.env}.items()
            if name not in self.public_env and SANDBOX not in value
        }

    @property
    def wants_sandbox(self) -> bool:
        return any(SANDBOX in text for text in (*self.args, *self.env.values(), str(self.cwd)))

    def __str__(self) -> str:
        return f"{self.name} ({self.command})"


class HttpServer(_Named):
    """A server of the streamable HTTP transport."""

    url: Annotated[str, Field(repr=False, exclude=True)]
    """Only scheme and host are ever shown."""
    headers: Secrets = {}
    """Secret, all of them."""

    @model_validator(mode="after")
    def _is_http(self) -> Self:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            usable = False
        if not usable:  # pydantic's own error would show it
            raise ValueError("url must begin with http:// or https:// and a host")
        return self

    @property
    def secrets(self) -> dict[str, str]:
        found = dict(self.headers)
        for name, value in list(found.items()):
            scheme, space, credentials = value.partition(" ")
            if space and scheme.isalpha():
                found[f"{name} {scheme}"] = credentials
        url = self.url
        parts = urlsplit(url)
        found |= {f"url {name}": value for name, value in parse_qsl(parts.query)}
        if parts.password:
            found["url password"] = parts.password
        if parts.query or parts.password:
            found["url"] = url
        return found

    @property
    def wants_sandbox(self) -> bool:
        return False

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{self.name} ({parts.scheme}://{parts.hostname}{port})"


Server = StdioServer | HttpServer
