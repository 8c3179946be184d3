from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from art_core.errors import StorageError
from art_core.runs.files import write_whole
from art_core.runs.jsonl import JsonLines
from art_core.runs.steplog import StepLog


def python(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    write_whole(path, [b"one", b"two"])
    write_whole(path, [b"three"])
    assert path.read_bytes() == b"three"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, [b"old"])

    def chunks() -> Iterator[bytes]:
        yield b"new"
        raise KeyError("no more")

    with pytest.raises(KeyError):
        write_whole(path, chunks())
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_killed_while_writing_the_old_file_is_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, [b"old"])
    done = python(
        """
        import os, signal, sys
        from pathlib import Path
        from art_core.runs import write_whole

        def chunks():
            yield b"new" * 100_000
            os.kill(os.getpid(), signal.SIGKILL)

        write_whole(Path(sys.argv[1]), chunks())
        """,
        path,
    )
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"


FULL_DISK = """
    import resource, signal, sys
    from pathlib import Path
    from art_core.errors import StorageError
    from art_core.runs.files import write_whole
    from art_core.runs.jsonl import JsonLines

    # The kernel refuses to let any file grow further: a real write that fails half-way.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
    path = Path(sys.argv[1])
    try:
        if sys.argv[2] == "whole":
            write_whole(path, [b"x" * 10_000])
        else:
            JsonLines(path).append({"text": "x" * 10_000})
    except StorageError as error:
        print(error)
"""


@pytest.mark.parametrize("how", ["whole", "line"])
def test_a_write_that_the_disk_has_no_room_for_changes_nothing(tmp_path: Path, how: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b'{"a": 1}\n')
    done = python(FULL_DISK, path, how)
    assert f"{path}: File too large. Raise the file size limit" in done.stdout, done.stderr
    assert path.read_bytes() == b'{"a": 1}\n'
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"metrics\.jsonl: No space left.*Free some space"):
        JsonLines(tmp_path / "metrics.jsonl").append({"a": 1})


def test_lines_are_read_as_they_were_appended(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "log.jsonl")
    assert lines.read() == []
    records = [{"a": 1}, {"text": "zwei\nZeilen ✓"}, {"x": [1.5, None]}]
    for record in records:
        lines.append(record)
    assert lines.read() == records


@pytest.mark.parametrize("repaired", [True, False])
@pytest.mark.parametrize("torn", [b'{"b": ', b'{"b": 2}', b"\xff\xfe"])
def test_a_torn_last_line_is_passed_over_and_cut_off(
    tmp_path: Path, torn: bytes, repaired: bool
) -> None:
    lines = JsonLines(tmp_path / "log.jsonl")
    lines.append({"a": 1})
    with lines.path.open("ab") as file:
        file.write(torn)
    assert lines.read() == [{"a": 1}]
    if repaired:
        assert lines.repair() == len(torn)
        assert lines.path.read_bytes() == b'{"a": 1}\n'
    lines.append({"c": 3})
    assert lines.read() == [{"a": 1}, {"c": 3}]


@pytest.mark.parametrize("line", [b"{nonsense}\n", b"[1]\n"])
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line)
    with pytest.raises(Exception, match=r"log\.jsonl, line 2, can't be read"):
        JsonLines(path).read()


def test_lines_survive_a_kill_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                """
                import sys
                from pathlib import Path
                from art_core.runs.jsonl import JsonLines
                lines = JsonLines(Path(sys.argv[1]))
                for n in range(10**9):
                    lines.append({"n": n, "text": "x" * 20_000})
                    print(n, flush=True)
                """
            ),
            str(path),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    acknowledged = [int(process.stdout.readline()) for _ in range(20)]
    os.kill(process.pid, signal.SIGKILL)
    acknowledged += [int(line) for line in process.stdout.read().split()]
    process.stdout.close()
    process.wait()
    lines = JsonLines(path)
    lines.repair()
    found = [record["n"] for record in lines.read()]
    assert found[: len(acknowledged)] == acknowledged
    assert found == list(range(len(found)))


def test_steps_are_taken_back_without_losing_a_line(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "steps.jsonl")
    for step in (1, 2, 3):
        log.append(step, {"a": step})
    log.rewind(3)
    assert len(log.lines.read()) == 3, "nothing to take back"
    log.rewind(1)
    log.append(2, {"a": 20})
    assert [(line["step"], line["a"]) for line in log.read()] == [(1, 1), (2, 20)]
    assert [line.get("a") for line in log.lines.read()] == [1, 2, 3, None, 20]
