"""API keys: shown once, kept as hashes."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from hmac import compare_digest
from pathlib import Path

from filelock import FileLock
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from art_core.config import Config, PositiveFloat, PositiveInt
from art_core.errors import ConfigError, RunDamagedError
from art_core.runs import check_name, write_whole
from art_core.runs.files import make_folder, storage_errors

SERVER_FOLDER = ".server"
"""Under the root: keys, queue and usage."""
KEYS_FILE = "keys.json"
_PREFIX = "sk-art-"


class Limits(Config):
    """What one key may use. None: as much as there is."""

    requests_per_minute: PositiveInt | None = None
    rollouts: PositiveInt | None = None
    """Open at once."""
    tokens_per_day: PositiveInt | None = None
    """Prompt and sampled tokens, by UTC day."""
    disk_gb: PositiveFloat | None = None
    """All that the key's project has on disk, in 10^9 bytes."""


class KeyRecord(BaseModel):
    """A key as it is kept: whoever reads it can't use it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    project: str
    name: str
    digest: str
    """SHA-256 of the key. It is 256 random bits: there is no dictionary to try, so
    a slow hash would add nothing but time to each request."""
    limits: Limits = Limits()
    created_at: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))
    revoked_at: AwareDatetime | None = None


class _KeyFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format_version: int = 1
    keys: list[KeyRecord] = []


class KeyStore:
    """``<root>/.server/keys.json``. Changes by another process hold from the next request on."""

    def __init__(self, root: Path) -> None:
        self.path = root / SERVER_FOLDER / KEYS_FILE
        self._seen: tuple[int, int] | None = None
        self._by_id: dict[str, KeyRecord] = {}

    def create(
        self, project: str, name: str, limits: Limits | None = None
    ) -> tuple[KeyRecord, str]:
        """Make a key of a project; returns its record and, this once, the key.

        Raises:
            ConfigError: project or name can't be used, or the project has a key of this name.
            StorageError: it couldn't be written.
        """
        check_name("project", project)
        check_name("name", name)
        with self._changing() as keys:
            if any((k.project, k.name, k.revoked_at) == (project, name, None) for k in keys):
                raise ConfigError(
                    f"project {project!r} has a key called {name!r} already",
                    "Choose another name, or revoke that one first.",
                )
            key_id = secrets.token_hex(6)
            key = f"{_PREFIX}{key_id}-{secrets.token_urlsafe(32)}"
            record = KeyRecord(
                id=key_id,
                project=project,
                name=name,
                digest=_digest(key),
                limits=limits or Limits(),
            )
            keys.append(record)
        return record, key

    def revoke(self, key_id: str) -> KeyRecord:
        """Refuse a key from now on.

        Raises:
            ConfigError: there is no such key.
        """
        with self._changing() as keys:
            for index, record in enumerate(keys):
                if record.id == key_id:
                    revoked = record.revoked_at or datetime.now(UTC)
                    keys[index] = record.model_copy(update={"revoked_at": revoked})
                    return keys[index]
        raise ConfigError(f"no key has the id {key_id!r:.100}", "'art keys list' shows them.")

    def all(self) -> list[KeyRecord]:
        """Every key, revoked ones too, oldest first."""
        self._refresh()
        return list(self._by_id.values())

    def find(self, key: str) -> KeyRecord | None:
        """The record of a key that may be used."""
        if not key.startswith(_PREFIX):
            return None
        self._refresh()
        record = self._by_id.get(key.removeprefix(_PREFIX).partition("-")[0])
        if record is None or record.revoked_at is not None:
            return None
        return record if compare_digest(record.digest, _digest(key)) else None

    @contextmanager
    def _changing(self) -> Generator[list[KeyRecord]]:
        make_folder(self.path.parent)
        self.path.parent.chmod(0o700)
        with FileLock(self.path.with_suffix(".lock")):
            keys = self._read()
            yield keys
            content = _KeyFile(keys=keys).model_dump_json(indent=2)
            write_whole(self.path, [content.encode()])
            self.path.chmod(0o600)

    def _refresh(self) -> None:
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            self._seen, self._by_id = None, {}
            return
        seen = (stat.st_mtime_ns, stat.st_ino)
        if seen != self._seen:
            self._by_id = {record.id: record for record in self._read()}
            self._seen = seen

    def _read(self) -> list[KeyRecord]:
        if not self.path.exists():
            return []
        try:
            with storage_errors("read", self.path):
                return _KeyFile.model_validate_json(self.path.read_bytes()).keys
        except ValidationError as error:
            raise RunDamagedError(
                f"{self.path} can't be read: {error}", "Restore the file from a copy."
            ) from error


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
