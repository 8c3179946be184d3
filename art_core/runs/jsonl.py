"""Files of one JSON object per line: appended whole, read whole."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from art_core.errors import RunDamagedError
from art_core.runs.files import make_folder, storage_errors, sync_folder


class JsonLines:
    """An append-only log.

    A line counts once its newline is on disk. A process that is killed while
    appending leaves a torn last line: readers pass over it, and `repair`, called
    by the next writer, cuts it off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def append(self, record: Mapping[str, Any]) -> None:
        """Add an object as a line; see `append_json`."""
        self.append_json(json.dumps(record, ensure_ascii=False))

    def append_json(self, text: str) -> None:
        """Add an object that is JSON already, without newlines; on disk when this returns.

        Raises:
            StorageError: it couldn't be written; the file is as it was.
        """
        line = text.encode() + b"\n"
        with self._lock, storage_errors("append to", self.path):
            created = not self.path.exists()
            if created:
                make_folder(self.path.parent)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                _cut_torn_line(descriptor)
                _write_or_undo(descriptor, line)
            finally:
                os.close(descriptor)
            if created:
                sync_folder(self.path.parent)

    def read(self) -> list[dict[str, Any]]:
        """All whole lines, oldest first; none if there is no file.

        Raises:
            RunDamagedError: a whole line isn't a JSON object.
        """
        return list(self._parse())

    def repair(self) -> int:
        """Cut off a torn last line; returns the number of bytes cut.

        For the run's one writer only.
        """
        if not self.path.exists():
            return 0
        with self._lock, storage_errors("repair", self.path), self.path.open("r+b") as file:
            return _cut_torn_line(file.fileno())

    def _parse(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        with storage_errors("read", self.path):
            content = self.path.read_bytes()
        lines = content[: _end_of_last_line(content)].split(b"\n")[:-1]
        for number, line in enumerate(lines, start=1):
            try:
                record: object = json.loads(line)
            except ValueError as error:
                raise self._damaged(number, str(error)) from error
            if not isinstance(record, dict):
                raise self._damaged(number, "not a JSON object")
            yield cast("dict[str, Any]", record)

    def _damaged(self, number: int, reason: str) -> RunDamagedError:
        return RunDamagedError(
            f"{self.path}, line {number}, can't be read: {reason}",
            "Restore the file from a copy, or remove that line.",
        )


def _end_of_last_line(content: bytes) -> int:
    return content.rfind(b"\n") + 1


def _cut_torn_line(descriptor: int) -> int:
    size = os.fstat(descriptor).st_size
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return 0
    whole = _end_of_last_line(os.pread(descriptor, size, 0))
    os.ftruncate(descriptor, whole)
    os.fsync(descriptor)
    return size - whole


def _write_or_undo(descriptor: int, line: bytes) -> None:
    size = os.fstat(descriptor).st_size
    try:
        view = memoryview(line)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except OSError:
        # Should the undoing fail, too, the first error says more, and what there is of
        # the line counts as torn: the next append cuts it off.
        with suppress(OSError):
            os.ftruncate(descriptor, size)
        raise
