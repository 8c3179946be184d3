"""A small model learns to look things up in real files, by ``server-filesystem``.

    python -m examples.mcp_filesystem --folder .

Needs Node.js, whose ``npx`` fetches the server. It's asked how large a Python file below the
folder is and what its first line says, must call ``get_file_info`` or ``read_text_file``
with the right path, and answer with what comes back. Held-out questions are about files that
nothing else was about. Only tools that read are offered, so the folder stays as it is.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import art_core
from examples import mcp_shared
from examples.mcp_shared import Example, Scenario
from integrations.mcp import StdioServer

COMMAND = "npx -y @modelcontextprotocol/server-filesystem"
FOLDER = Path(art_core.__file__).parent
"""Real files that are there wherever this runs."""
LONGEST_LINE = 80


def scenarios(folder: Path) -> list[Scenario]:
    """A question about each file: about its size or its first line in turn."""
    made: list[Scenario] = []
    for number, path in enumerate(sorted(folder.rglob("*.py"))):
        name = path.relative_to(folder).as_posix()
        first = path.read_text("utf-8").partition("\n")[0]
        if number % 2 and first and len(first) <= LONGEST_LINE and first == first.strip():
            task, tool = f"What is the first line of {name}?", "read_text_file"
            made.append(mcp_shared.scenario(task, tool, {"path": name, "head": 1}, first))
        else:
            task, size = f"How many bytes has {name}?", str(path.stat().st_size)
            made.append(mcp_shared.scenario(task, "get_file_info", {"path": name}, size))
    return mcp_shared.shuffled(made)


def example(folder: Path = FOLDER, command: str = COMMAND) -> Example:
    folder = folder.resolve()
    line = f"{command} {shlex.quote(str(folder))}"
    return Example(
        name="filesystem",
        server=StdioServer.from_command(line, cwd=folder),
        tools=["get_file_info", "read_text_file"],
        system="Call a tool, then answer with what was asked for alone.",
        scenarios=scenarios(folder),
    )


if __name__ == "__main__":
    options = mcp_shared.parser(__doc__, COMMAND)
    options.add_argument("--folder", type=Path, default=FOLDER, help="default: %(default)s")
    given = options.parse_args()
    mcp_shared.run(example(given.folder, given.server), given)
