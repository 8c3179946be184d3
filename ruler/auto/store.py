"""Scenarios on disk: JSON lines that survive being interrupted."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from art_core.errors import RunLockedError, ScenarioError, StorageError
from ruler.auto.scenario import Scenario


def load_scenarios(path: Path | str) -> list[Scenario]:
    """The scenarios in a JSONL file. A last line that was cut off in writing isn't there.

    Raises:
        ScenarioError: a line isn't a scenario, or two are the same; names the line.
        StorageError: the file can't be read.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} can't be read: {error}", "Check the path.") from error
    found: dict[str, Scenario] = {}
    *lines, _cut_off = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            scenario = Scenario.model_validate_json(line)
        except ValidationError as error:
            reason = error.errors()[0]
            where = ".".join(str(part) for part in reason["loc"])
            raise ScenarioError(
                f"{path} line {number} is not a scenario: {where} {reason['msg']}",
                "Correct the line or delete it.",
            ) from error
        if scenario.id in found:
            raise ScenarioError(
                f"{path} line {number} repeats scenario {scenario.id}", "Delete the line."
            )
        found[scenario.id] = scenario
    return list(found.values())


@contextmanager
def appending(path: Path) -> Generator[ScenarioFile]:
    """The file, to go on writing it; for one process at a time.

    Raises:
        RunLockedError: another process writes it.
        StorageError: it can't be written.
    """
    lock = FileLock(path.with_name(path.name + ".lock"), timeout=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise RunLockedError(
            f"another process is making scenarios in {path}", "Wait for it, or use another path."
        ) from error
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        yield ScenarioFile(path)
    finally:
        lock.release()


class ScenarioFile:
    """What `appending` gives."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.exists():
            _drop_cut_off_line(path)
        self.scenarios = load_scenarios(path) if path.exists() else []

    def add(self, scenarios: Iterable[Scenario]) -> None:
        """Append; on disk when this returns.

        Raises:
            StorageError: they can't be written.
        """
        new = list(scenarios)
        try:
            with self._path.open("ab") as file:
                file.write("".join(one.model_dump_json() + "\n" for one in new).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _unwritable(self._path, error) from error
        self.scenarios += new


def _unwritable(path: Path, error: OSError) -> StorageError:
    return StorageError(f"{path} can't be written: {error}", "Make room, or use another path.")


def _drop_cut_off_line(path: Path) -> None:
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("rb+") as file:
            file.truncate(whole)
