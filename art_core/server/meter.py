"""What keys use, and whether that is within their limits."""

from __future__ import annotations

import json
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from art_core.errors import LimitExceededError
from art_core.runs import write_whole
from art_core.server.keys import SERVER_FOLDER, KeyRecord

current_key: ContextVar[KeyRecord | None] = ContextVar("art_current_key", default=None)
"""The key behind the request that this code serves."""

_DISK_SECONDS = 10.0
"""For which a measured disk usage is taken to hold."""


@dataclass(slots=True)
class _Bucket:
    """A token bucket that holds a minute's requests."""

    left: float
    at: float


@dataclass(slots=True)
class Meter:
    """Counts by key. Tokens are kept over a restart, up to the last `save`."""

    root: Path
    _buckets: dict[str, _Bucket] = field(default_factory=dict[str, _Bucket])
    _day: str = ""
    _tokens: dict[str, int] = field(default_factory=dict[str, int])
    _disk: dict[str, tuple[float, int]] = field(default_factory=dict[str, tuple[float, int]])
    _saved: dict[str, int] = field(default_factory=dict[str, int])

    def load(self) -> None:
        if self._path.exists():
            kept = json.loads(self._path.read_bytes())
            self._day, self._tokens = str(kept["day"]), dict(kept["tokens"])
            self._saved = dict(self._tokens)

    def save(self) -> None:
        """Raises StorageError."""
        if self._tokens != self._saved:
            content = json.dumps({"day": self._day, "tokens": self._tokens})
            write_whole(self._path, [content.encode()])
            self._saved = dict(self._tokens)

    def request(self, key: KeyRecord) -> float:
        """Count a request; seconds to wait where the rate is above the key's limit, else 0."""
        limit = key.limits.requests_per_minute
        if limit is None:
            return 0.0
        now = time.monotonic()
        bucket = self._buckets.setdefault(key.id, _Bucket(float(limit), now))
        bucket.left = min(float(limit), bucket.left + (now - bucket.at) * limit / 60)
        bucket.at = now
        if bucket.left < 1:
            return (1 - bucket.left) * 60 / limit
        bucket.left -= 1
        return 0.0

    def add_tokens(self, count: int) -> None:
        """Count tokens for the key that is being served."""
        key = current_key.get()
        if key is not None:
            self._begin_day()
            self._tokens[key.id] = self._tokens.get(key.id, 0) + count

    def check_tokens(self, key: KeyRecord) -> None:
        """Raises LimitExceededError: today's tokens are used up."""
        self._begin_day()
        used, limit = self._tokens.get(key.id, 0), key.limits.tokens_per_day
        if limit is not None and used >= limit:
            raise LimitExceededError(
                f"key {key.name!r} has used {used} tokens today, of {limit}",
                "Wait for the next day (UTC), or have the limit raised.",
            )

    def check_disk(self, key: KeyRecord) -> None:
        """Raises LimitExceededError: the project has as much on disk as it may. Blocks."""
        limit = key.limits.disk_gb
        if limit is None:
            return
        at, used = self._disk.get(key.project, (-_DISK_SECONDS, 0))
        if time.monotonic() - at >= _DISK_SECONDS:
            used = _bytes_under(self.root / key.project)
            self._disk[key.project] = (time.monotonic(), used)
        if used >= limit * 1e9:
            raise LimitExceededError(
                f"project {key.project!r} has {used / 1e9:.3g} GB on disk, of {limit:g}",
                "Prune checkpoints (model.delete_checkpoints()), or have the limit raised.",
            )

    @property
    def _path(self) -> Path:
        return self.root / SERVER_FOLDER / "usage.json"

    def _begin_day(self) -> None:
        today = datetime.now(UTC).date().isoformat()
        if today != self._day:
            self._day, self._tokens = today, {}


def _bytes_under(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.lstat().st_size
        except FileNotFoundError:
            continue  # removed meanwhile
    return total
