"""The record store: every completion of a run, in one SQLite file.

What is acknowledged is written: `RecordStore.submit` resolves once the
transaction is in SQLite's write-ahead log, which outlives the process being
killed at any moment (a power cut may cost the last transactions, never the
file). Records that wait together are committed together, by one thread.

A completion that continues an earlier one of its rollout is stored as what it
adds to it, so a conversation takes space in proportion to its length and not to
its square. `art_core.runs.record_rows` describes the columns.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from art_core.errors import RunDamagedError, StorageError, UnknownCompletionError
from art_core.runs.record_rows import COLUMNS, SCHEMA, Row, decode, encode
from art_core.trajectories import Completion, CompletionStatus

FORMAT_VERSION = 1
"""Kept in SQLite's ``user_version``; another one in the file is a RunDamagedError."""

_INSERT = f"INSERT INTO completions ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM completions"
_COMMIT_TOGETHER = 256

Write = Callable[[sqlite3.Connection], None]


@dataclass(frozen=True, slots=True)
class Record:
    """A completion to store, and the one of the same rollout that it continues.

    The prompt of ``completion`` begins with the prompt and the sampled tokens of
    ``parent``.
    """

    completion: Completion
    parent: Completion | None = None


class RecordStore:
    """Reads and writes ``records.sqlite``. All methods may be called from any thread.

    Raises:
        StorageError: the file can't be created or opened.
        RunDamagedError: it isn't a record store, or one of another format.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: SimpleQueue[tuple[Write, Future[None]] | None] = SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        with self._storage_errors("opened"):
            connection = sqlite3.connect(
                path, timeout=30, isolation_level=None, check_same_thread=False
            )
            try:
                _prepare(connection, path)
            except BaseException:
                connection.close()
                raise
        self._thread = threading.Thread(
            target=self._write_forever, args=(connection,), name="art-records", daemon=True
        )
        self._thread.start()

    @property
    def path(self) -> Path:
        return self._path

    def submit(self, records: Sequence[Record]) -> Future[None]:
        """Write records, all or none; the future resolves once they are safe.

        Its exception is a StorageError when the disk is full, read-only or failing.
        """
        rows = [encode(record.completion, record.parent) for record in records]
        return self._enqueue(lambda connection: _insert(connection, rows))

    def put(self, completions: Iterable[Completion]) -> None:
        """Write completions and wait for it; raises as `submit`'s future does."""
        self.submit([Record(completion) for completion in completions]).result()

    def abandon(self, completion_ids: Sequence[str]) -> Future[None]:
        """Mark records as abandoned: their answers never reached an agent."""
        rows = [(CompletionStatus.ABANDONED.value, each) for each in completion_ids]

        def update(connection: sqlite3.Connection) -> None:
            connection.executemany("UPDATE completions SET status = ? WHERE id = ?", rows)

        return self._enqueue(update)

    def by_ids(self, completion_ids: Sequence[str]) -> list[Completion]:
        """The completions with these ids, in that order.

        Raises:
            UnknownCompletionError: there is no record of some of them.
        """
        known: dict[str, Completion] = {}
        with self._reading() as connection:
            for completion_id in completion_ids:
                _read_with_parents(connection, completion_id, known)
        missing = [each for each in completion_ids if each not in known]
        if missing:
            raise UnknownCompletionError(
                f"no record of completion {', '.join(missing[:3])}"
                + (f" and {len(missing) - 3} more" if len(missing) > 3 else ""),
                f"Only completions of this run are in {self._path}.",
            )
        return [known[each] for each in completion_ids]

    def by_rollout(self, rollout_id: str) -> list[Completion]:
        """All completions of a rollout, in the order in which they were written."""
        with self._reading() as connection:
            rows = connection.execute(f"{_SELECT} WHERE rollout_id = ? ORDER BY seq", (rollout_id,))
            return list(_decoded(rows))

    def __iter__(self) -> Iterator[Completion]:
        """All completions, rollout by rollout; those without one come first."""
        with self._reading() as connection:
            yield from _decoded(connection.execute(f"{_SELECT} ORDER BY rollout_id, seq"))

    def __len__(self) -> int:
        return self._count("SELECT count(*) FROM completions")

    def quarantined(self) -> int:
        """How many completions belong to no rollout."""
        return self._count("SELECT count(*) FROM completions WHERE rollout_id IS NULL")

    def close(self) -> None:
        """Write what waits and close the file. May be called twice."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _count(self, query: str) -> int:
        with self._reading() as connection:
            (count,) = connection.execute(query).fetchone()
        return int(count)

    @contextmanager
    def _storage_errors(self, done: str) -> Generator[None]:
        try:
            yield
        except SQLITE_FAILURES as error:
            raise _storage_error(self._path, error, done) from error

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        with self._storage_errors("read"):
            connection = sqlite3.connect(self._path, timeout=30, check_same_thread=False)
            try:
                connection.execute("PRAGMA query_only = ON")
                yield connection
            finally:
                connection.close()

    def _enqueue(self, write: Write) -> Future[None]:
        future: Future[None] = Future()
        with self._closing:
            if self._closed:
                raise StorageError(f"{self._path} is closed")
            self._queue.put((write, future))
        return future

    def _write_forever(self, connection: sqlite3.Connection) -> None:
        try:
            while (first := self._queue.get()) is not None:
                batch = [first, *_drain(self._queue, _COMMIT_TOGETHER - 1)]
                self._commit(connection, [item for item in batch if item is not None])
                if None in batch:
                    return
        finally:
            connection.close()

    def _commit(
        self, connection: sqlite3.Connection, batch: list[tuple[Write, Future[None]]]
    ) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
            for write, _ in batch:
                write(connection)
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001  (handed to whoever waits for the write)
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if len(batch) > 1:  # one bad write must not fail its neighbours
                for item in batch:
                    self._commit(connection, [item])
                return
            if isinstance(error, SQLITE_FAILURES):
                error = _storage_error(self._path, error, "written")
            batch[0][1].set_exception(error)
        else:
            for _, future in batch:
                future.set_result(None)


SQLITE_FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""What sqlite3 raises; the latter for a damaged file's text, or a message, that isn't UTF-8."""


def check_records(path: Path) -> int:
    """Read a whole record store without changing it; returns the number of completions.

    Raises:
        RunDamagedError: the file or a record in it is damaged.
        StorageError: it can't be read.
    """
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30)
        try:
            (found,) = connection.execute("PRAGMA integrity_check").fetchone()
            if found != "ok":
                raise RunDamagedError(f"{path} is damaged: {found}")
            _check_format(connection, path)
            rows = connection.execute(f"{_SELECT} ORDER BY rollout_id, seq")
            return sum(1 for _ in _decoded(rows))
        finally:
            connection.close()
    except SQLITE_FAILURES as error:
        raise _storage_error(path, error, "read") from error


def read_rollouts(path: Path, rollout_ids: Iterable[str]) -> dict[str, list[Completion]]:
    """The completions of some rollouts, by rollout, without changing the file.

    Raises:
        RunDamagedError: the file or a record in it is damaged.
        StorageError: it can't be read.
    """
    query = f"{_SELECT} WHERE rollout_id = ? ORDER BY seq"
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30)
        try:
            _check_format(connection, path)
            return {each: [*_decoded(connection.execute(query, (each,)))] for each in rollout_ids}
        finally:
            connection.close()
    except SQLITE_FAILURES as error:
        raise _storage_error(path, error, "read") from error


def _storage_error(path: Path, error: Exception, done: str) -> StorageError | RunDamagedError:
    # DatabaseError itself, without a code: text that isn't UTF-8, a wrong type.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
        return RunDamagedError(f"{path} isn't a record store: {error}")
    return StorageError(
        f"{path} can't be {done}: {error}",
        "Free disk space, or choose a run directory that is writable.",
    )


def _drain(
    queue: SimpleQueue[tuple[Write, Future[None]] | None], limit: int
) -> Iterator[tuple[Write, Future[None]] | None]:
    for _ in range(limit):
        try:
            item = queue.get_nowait()
        except Empty:
            return
        yield item
        if item is None:
            return


def _check_format(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether there is anything in the file; refuses another format."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and version != FORMAT_VERSION:
        raise RunDamagedError(
            f"{path} has format {version}, this version of ART Core reads {FORMAT_VERSION}",
            "Read it with the version that wrote it.",
        )
    return bool(tables)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    if not _check_format(connection, path):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {FORMAT_VERSION}; COMMIT;")
    connection.execute("PRAGMA synchronous = NORMAL")


def _insert(connection: sqlite3.Connection, rows: list[Row]) -> None:
    connection.executemany(_INSERT, rows)


def _decoded(rows: Iterable[Row]) -> Iterator[Completion]:
    """Decode rows that come rollout by rollout, parents before children."""
    known: dict[str, Completion] = {}
    rollout_id: str | None = None
    for row in rows:
        completion = decode(row, known)
        if completion.rollout_id != rollout_id:
            rollout_id, known = completion.rollout_id, {}
        if rollout_id is not None:
            known[completion.id] = completion
        yield completion


def _read_with_parents(
    connection: sqlite3.Connection, completion_id: str, known: dict[str, Completion]
) -> None:
    chain: list[Row] = []
    wanted: str | None = completion_id
    while wanted is not None and wanted not in known:
        row: Row | None = connection.execute(f"{_SELECT} WHERE id = ?", (wanted,)).fetchone()
        if row is None:
            break
        chain.append(row)
        wanted = row[COLUMNS.index("parent_id")]
    for row in reversed(chain):
        completion = decode(row, known)
        known[completion.id] = completion
