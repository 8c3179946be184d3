"""Which commands ``art`` has, known without importing any of them."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import typer

from art_core.errors import ConfigError

ENTRY_POINT_GROUP = "art_core.commands"

BUILT_IN = {
    "demo": "art_core.cli.demo:demo",
    "check": "art_core.cli.check:check",
    "doctor": "art_core.cli.doctor:doctor",
    "sft": "art_core.cli.sft:sft",
    "compare": "art_core.cli.compare:compare",
    "runs": "art_core.cli.runs:app",
    "models": "art_core.cli.models:app",
    "serve": "art_core.cli.serve:serve",
    "keys": "art_core.cli.keys:app",
    "export": "art_core.cli.export:export",
    "push": "art_core.cli.push:push",
}

Command = typer.Typer | Callable[..., object]


@dataclass(frozen=True, slots=True)
class CommandSource:
    """A command that hasn't been imported yet."""

    name: str
    target: str
    """``module:attribute`` of a `typer.Typer` (several commands) or a function (one)."""
    package: str | None = None
    """The distribution that adds it; None: it's built in."""

    @property
    def summary(self) -> str:
        """First line of the module's docstring, read from its source."""
        line = _first_docstring_line(self.target.partition(":")[0])
        return line or f"from {self.package or 'art-core'}"

    def load(self) -> Command:
        """Import the command.

        Raises:
            ConfigError: it fails to import, or isn't a command.
        """
        module, _, attribute = self.target.partition(":")
        try:
            command = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"command 'art {self.name}' ({self.target}) can't be loaded: {error}",
                f"Install what it needs, or update or remove {self.package or 'art-core'}.",
            ) from error
        if not isinstance(command, typer.Typer) and not callable(command):
            raise ConfigError(
                f"command 'art {self.name}': {self.target} is a {type(command).__name__}",
                "An entry point must name a typer.Typer or a function.",
            )
        return command


def find_commands() -> list[CommandSource]:
    """The built-in commands, then those that installed packages add, by name.

    Raises:
        ConfigError: two packages add a command of the same name, or one that is built in.
    """
    found = {name: CommandSource(name, target) for name, target in BUILT_IN.items()}
    added = entry_points(group=ENTRY_POINT_GROUP)
    for entry in sorted(added, key=lambda entry: entry.name):
        source = CommandSource(entry.name, entry.value, _package_of(entry))
        other = found.setdefault(entry.name, source)
        if other.target != source.target:
            raise ConfigError(
                f"two commands are called 'art {entry.name}': {other.target} and {source.target}",
                f"Remove {source.package} or {other.package or 'the older art-core'}.",
            )
    return list(found.values())


def _package_of(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unknown package"


def _first_docstring_line(module: str) -> str | None:
    """Read from the source, so that listing commands runs none of their code."""
    path = _source_of(module)
    if path is None:
        return None
    docstring = ast.get_docstring(ast.parse(path.read_bytes()))
    return docstring.splitlines()[0].rstrip(".") if docstring else None


def _source_of(module: str) -> Path | None:
    """The module's file; unlike `importlib.util.find_spec`, doesn't import its parents."""
    parts = module.split(".")
    paths: list[str] = sys.path
    origin = None
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), paths)
        if spec is None:
            return None
        paths, origin = list(spec.submodule_search_locations or ()), spec.origin
    return Path(origin) if origin is not None and origin.endswith(".py") else None
