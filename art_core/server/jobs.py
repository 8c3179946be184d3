"""The queue of training steps, on disk: what was accepted is trained once, whatever happens."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from art_core.backends.remote_api import ErrorBody, JobState, StepRequest
from art_core.errors import ConfigError, StorageError
from art_core.runs.files import make_folder
from art_core.runs.records import SQLITE_FAILURES

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    project TEXT NOT NULL,
    model TEXT NOT NULL,
    key TEXT NOT NULL,
    body TEXT NOT NULL,
    state TEXT NOT NULL,
    step INTEGER,
    metrics TEXT,
    error TEXT,
    submitted_at REAL NOT NULL,
    UNIQUE (project, model, key)
);
"""
_COLUMNS = "id, project, model, body, state, step, metrics, error"
_KEPT_FINISHED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training step that a client asked for."""

    id: str
    project: str
    model: str
    request: StepRequest
    state: JobState
    step: int | None = None
    metrics: Mapping[str, float | None] | None = None
    error: ErrorBody | None = None


class JobStore:
    """``jobs.sqlite``. All methods block for a moment, and may be called from any thread.

    Raises:
        StorageError: the file can't be read or written.
    """

    def __init__(self, path: Path) -> None:
        make_folder(path.parent)
        self._path = path
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(
                path, timeout=30, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)
        except SQLITE_FAILURES as error:
            raise StorageError(f"{path} can't be opened: {error}") from error

    def submit(self, project: str, model: str, key: str, request: StepRequest) -> Job:
        """The job of an idempotency key: a new one, or the one that it stands for already.

        A job that failed is queued again.

        Raises:
            ConfigError: the key stands for another request.
        """
        body = request.model_dump_json()
        with self._lock:
            found = self._query("project = ? AND model = ? AND key = ?", project, model, key)
            if not found:
                self._execute(
                    "INSERT INTO jobs (id, project, model, key, body, state, submitted_at) "
                    "VALUES (?, ?, ?, ?, ?, 'queued', ?)",
                    (uuid4().hex, project, model, key, body, time.time()),
                )
            elif [g.id for g in found[0].request.groups] != [g.id for g in request.groups]:
                raise ConfigError(
                    f"idempotency-key {key!r:.80} was used for a step on other groups",
                    "Use a new key for a new request.",
                )
            elif found[0].state == "failed":
                self._execute(
                    "UPDATE jobs SET state = 'queued', error = NULL, body = ? WHERE id = ?",
                    (body, found[0].id),
                )
            return self._query("project = ? AND model = ? AND key = ?", project, model, key)[0]

    def get(self, project: str, job_id: str) -> Job | None:
        """A job of a project."""
        with self._lock:
            found = self._query("project = ? AND id = ?", project, job_id)
        return found[0] if found else None

    def of_project(self, project: str, limit: int) -> list[Job]:
        """The newest jobs of a project, newest first."""
        with self._lock:
            return self._query("project = ? ORDER BY seq DESC LIMIT ?", project, limit)

    def waiting(self) -> list[Job]:
        """Queued jobs and those that were being trained when the server was killed."""
        with self._lock:
            return self._query("state IN ('queued', 'running') ORDER BY state DESC, seq")

    def start(self, job: Job) -> None:
        with self._lock:
            self._execute("UPDATE jobs SET state = 'running' WHERE id = ?", (job.id,))

    def done(self, job: Job, step: int, metrics: Mapping[str, float | None]) -> None:
        with self._lock:
            self._execute(
                "UPDATE jobs SET state = 'done', step = ?, metrics = ? WHERE id = ?",
                (step, json.dumps(dict(metrics)), job.id),
            )
            self._execute(
                "DELETE FROM jobs WHERE state = 'done' AND seq <= (SELECT max(seq) FROM jobs) - ?",
                (_KEPT_FINISHED,),
            )

    def failed(self, job: Job, error: ErrorBody) -> None:
        with self._lock:
            self._execute(
                "UPDATE jobs SET state = 'failed', error = ? WHERE id = ?",
                (error.model_dump_json(), job.id),
            )

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _execute(self, statement: str, values: tuple[object, ...]) -> None:
        try:
            self._db.execute(statement, values)
        except SQLITE_FAILURES as error:
            raise StorageError(
                f"{self._path} can't be written: {error}", "Free disk space."
            ) from error

    def _query(self, where: str, *values: object) -> list[Job]:
        try:
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM jobs WHERE {where}", values).fetchall()
        except SQLITE_FAILURES as error:
            raise StorageError(f"{self._path} can't be read: {error}") from error
        return [_job(*row) for row in rows]


def _job(
    job_id: str,
    project: str,
    model: str,
    body: str,
    state: JobState,
    step: int | None,
    metrics: str | None,
    error: str | None,
) -> Job:
    return Job(
        id=job_id,
        project=project,
        model=model,
        request=StepRequest.model_validate_json(body),
        state=state,
        step=step,
        metrics=None if metrics is None else json.loads(metrics),
        error=None if error is None else ErrorBody.model_validate_json(error),
    )
