"""The documentation's code is run.

All ``python`` blocks of a page are one script, run in a fresh process in an
empty folder; top-level ``await`` is allowed. A block fenced as
``python sketch`` needs what a test can't have (a paid model, a GPU, the
reader's own agent): it's only compiled. In ``console`` blocks each ``$ art …``
line must name a command and options that exist.
"""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNER = """
import ast, asyncio, inspect, sys
page, source = sys.argv[1], sys.stdin.read()
code = compile(source, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
scope = {"__name__": "__main__"}
async def run():
    result = eval(code, scope)
    if inspect.isawaitable(result):
        await result
asyncio.run(run())
"""


def blocks(page: Path, kind: str) -> list[str]:
    return [body for info, body in FENCE.findall(page.read_text()) if info.strip() == kind]


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=page_id)
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, page_id(page)],
        input="\n".join(blocks(page, "python")),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python sketch")], ids=page_id)
def test_python_sketches_compile(page: Path) -> None:
    for source in blocks(page, "python sketch"):
        compile(source, page_id(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def art_commands() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for page in PAGES:
        for body in blocks(page, "console"):
            for line in body.replace("\\\n", " ").splitlines():
                if line.startswith("$ art "):
                    found.append((page_id(page), line[2:].split("  #")[0].strip()))
    return sorted(set(found))


@pytest.mark.parametrize(("page", "command"), art_commands())
def test_console_commands_exist(page: str, command: str) -> None:
    words = shlex.split(command)[1:]
    path: list[str] = []
    for word in words:
        if word.startswith("-") or not re.fullmatch(r"[a-z]+", word):
            break
        path.append(word)
    options = [word.split("=")[0] for word in words if word.startswith("--")]
    # The longest run of words that names a command; what follows are its arguments.
    for length in range(len(path), 0, -1):
        done = subprocess.run(
            [Path(sys.executable).with_name("art"), *path[:length], "--help"],
            capture_output=True,
            text=True,
            timeout=60,
            env={"COLUMNS": "200", "PATH": "/usr/bin:/bin", "TERM": "dumb"},
        )
        if done.returncode == 0:
            missing = [option for option in options if option not in done.stdout]
            assert not missing, f"{page}: {command}: no option {missing}\n{done.stdout}"
            return
    pytest.fail(f"{page}: no such command: {command}")
