"""A small model learns to look up commits of a repository, by ``mcp-server-git``.

    pip install mcp-server-git
    python -m examples.mcp_git --repository .

It's asked what a commit is about or when it was made, must call ``git_show`` with its name,
and answer with that part of what comes back. Held-out questions are about commits that
nothing else was about. ``git_show`` only reads, so the repository stays as it is.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from examples import mcp_shared
from examples.mcp_shared import Example, Scenario
from integrations.mcp import StdioServer

COMMAND = mcp_shared.installed("mcp-server-git")
LONGEST_SUBJECT = 80


def scenarios(repository: Path) -> list[Scenario]:
    """A question about each commit: about its subject or its day in turn."""
    listed = subprocess.run(
        ["git", "-C", str(repository), "log", "--no-merges", "--date=short",
         "--abbrev=8", "--format=%h%x09%ad%x09%s"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    made: list[Scenario] = []
    for number, line in enumerate(listed.splitlines()):
        name, day, subject = line.split("\t", 2)
        if not subject or len(subject) > LONGEST_SUBJECT:
            continue
        task, answer = (
            (f"On which day was commit {name} made?", day)
            if number % 2
            else (f"What is the subject of commit {name}?", subject)
        )
        arguments = {"repo_path": ".", "revision": name}
        made.append(mcp_shared.scenario(task, "git_show", arguments, answer))
    return mcp_shared.shuffled(made)


def example(repository: Path = Path(), command: str = COMMAND) -> Example:
    repository = repository.resolve()
    line = f"{command} --repository {shlex.quote(str(repository))}"
    return Example(
        name="git",
        server=StdioServer.from_command(line, cwd=repository),
        tools=["git_show"],
        system="The repository is at '.'. Call the tool, then answer with what was asked for "
        "alone.",
        scenarios=scenarios(repository),
        most_result=300,  # the diff comes after what is asked for
    )


if __name__ == "__main__":
    options = mcp_shared.parser(__doc__, COMMAND)
    options.add_argument("--repository", type=Path, default=Path(), help="default: this folder")
    given = options.parse_args()
    mcp_shared.run(example(given.repository, given.server), given)
