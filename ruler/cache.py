"""Answers of judges, kept on disk so that nothing is paid for twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from art_core.errors import StorageError

_TABLE = "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, text TEXT NOT NULL)"


def default_cache_path() -> Path:
    """``ruler/answers.sqlite`` in the cache folder of art_core."""
    from art_core.weights.files import default_cache_dir

    return default_cache_dir() / "ruler" / "answers.sqlite"


def answer_cache(where: Path | bool) -> AnswerCache | None:
    """A cache in this file; True: in the default one; False: none."""
    path = default_cache_path() if where is True else where
    return AnswerCache(path) if path else None


class AnswerCache:
    """Accepted answers by key, in one SQLite file that several processes may share.

    A connection for each operation: an answer took seconds to make, and nothing
    has to be closed, or moved between threads and event loops.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, key: str) -> str | None:
        """The answer under ``key``, or None.

        Raises:
            StorageError: the file can't be read.
        """
        with self._open() as database:
            row = database.execute("SELECT text FROM answers WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, text: str) -> None:
        """Keep an answer; whole or not at all.

        Raises:
            StorageError: the file can't be written.
        """
        with self._open() as database, database:
            database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, text))

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=30)) as database:
                database.execute(_TABLE)
                yield database
        except (sqlite3.Error, OSError) as error:
            raise StorageError(
                f"the judge's answers can't be kept in {self.path}: {error}",
                "Make room or choose another place with cache=…; cache=None keeps none. "
                "A damaged file can be deleted.",
            ) from error
