"""The ``art`` command: finds the command that was asked for, runs it, reports its errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from art_core import __version__
from art_core.cli.discovery import CommandSource, find_commands
from art_core.errors import ArtError

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exits with 0, 1 (an error), 2 (wrong usage) or 130 (Ctrl-C)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        build_app(words)(args=words, prog_name="art")
    except ArtError as error:
        console = Console(stderr=True)
        if _debugging(words):
            console.print_exception()
        console.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def build_app(words: Sequence[str]) -> typer.Typer:
    """The commands, of which only those named in ``words`` are imported.

    A module is imported when its command is run or asked for help, so that
    ``art --help`` and every other command start quickly.
    """
    app = typer.Typer(
        help="Reinforcement learning for the agent you already have.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for source in find_commands():
        _add(app, source, load=source.name in words)
    return app


def _add(app: typer.Typer, source: CommandSource, *, load: bool) -> None:
    if not load:
        app.command(source.name, help=source.summary)(_not_loaded)
        return
    command = source.load()
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=source.name, help=source.summary)
    else:
        app.command(source.name)(command)


def _not_loaded() -> None:
    """Stands for a command in the list; one that is run was named, and so loaded."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"art-core {__version__}")
        raise typer.Exit


def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show an error's traceback.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Reinforcement learning for the agent you already have."""
    del debug, version


def _debugging(words: Sequence[str]) -> bool:
    """``--debug`` counts among the options before the command."""
    for word in words:
        if not word.startswith("-"):
            return False
        if word == "--debug":
            return True
    return False
