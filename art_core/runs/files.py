"""Writing files so that they are whole or absent, whenever the process or machine stops."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path

from art_core.errors import StorageError

TEMPORARY_SUFFIX = ".tmp"

_REMEDIES = {
    errno.ENOSPC: "Free some space and start again: all that was committed is kept.",
    errno.EDQUOT: "Raise the disk quota and start again: all that was committed is kept.",
    errno.EFBIG: "Raise the file size limit and start again: all that was committed is kept.",
    errno.EROFS: "Choose a directory on a writable disk.",
    errno.EACCES: "Choose a directory that this user may write to.",
    errno.EPERM: "Choose a directory that this user may write to.",
}


@contextmanager
def storage_errors(action: str, path: Path) -> Generator[None]:
    """Turn an OSError inside into a StorageError that says what was being done.

    Raises:
        StorageError: from any OSError that isn't one already.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = _REMEDIES.get(error.errno) if error.errno is not None else None
        raise StorageError(f"can't {action} {path}: {reason}", remedy) from error


def sync_folder(path: Path) -> None:
    """Make the entries of a folder (created, renamed and removed names) durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make a file's content durable."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def make_folder(path: Path) -> None:
    """Create a folder and its parents, durably."""
    with storage_errors("create", path):
        missing = [p for p in (path, *path.parents) if not p.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            sync_folder(folder.parent)


def write_whole(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a file that appears, or replaces the one that was there, all at once.

    Raises:
        StorageError: it couldn't be written; the old content, if any, is untouched.
    """
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    with storage_errors("write", path):
        try:
            with temporary.open("wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def remove_temporaries(root: Path) -> None:
    """Remove what writers that were killed left behind. Only for the lock's holder."""
    with storage_errors("clean up", root):
        for path in root.rglob(f".*{TEMPORARY_SUFFIX}"):
            path.unlink(missing_ok=True)


def jsonable_metrics(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Metrics as JSON holds them, in the order of their names: NaN and infinities are null."""
    return {name: metrics[name] if isfinite(metrics[name]) else None for name in sorted(metrics)}
