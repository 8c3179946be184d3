"""One writer per run directory."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from art_core.errors import RunLockedError
from art_core.runs.files import make_folder, storage_errors, write_whole

_OWNER = "owner.json"


class Owner(BaseModel):
    """The process that writes, or last wrote, a run."""

    model_config = ConfigDict(frozen=True)

    host: str
    pid: int

    @classmethod
    def this_process(cls) -> Self:
        return cls(host=socket.gethostname(), pid=os.getpid())

    @property
    def alive(self) -> bool | None:
        """Whether that process still exists; None where it can't be seen from this host."""
        if self.host != socket.gethostname():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class RunLock:
    """The lock of a run directory, held from construction to `release`.

    The operating system holds it (``flock``): it ends with the process, however
    that ends, and isn't inherited by forked children. The lock file lies beside
    the directory, so that moving or copying a run doesn't take it along.
    """

    def __init__(self, run_path: Path) -> None:
        self._run_path = run_path
        make_folder(run_path.parent)
        # Neither a singleton (a second opener in this very process must be refused too)
        # nor per thread (it may be released by another one).
        path = run_path.with_name(f".{run_path.name}.lock")
        self._lock = FileLock(path, is_singleton=False, thread_local=False)
        with storage_errors("lock", run_path):
            held = self._try_to_acquire()
        if not held:
            owner = read_owner(run_path)
            raise RunLockedError(
                f"{run_path} is in use by {owner or 'another process'}",
                "Wait for it to end or stop it, or give this model another name.",
            )

    def sign(self) -> None:
        """Say in the directory which process holds the lock."""
        write_whole(self._run_path / _OWNER, [Owner.this_process().model_dump_json().encode()])

    def release(self) -> None:
        (self._run_path / _OWNER).unlink(missing_ok=True)
        self._lock.release()

    def _try_to_acquire(self) -> bool:
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        return True


def read_owner(run_path: Path) -> Owner | None:
    """Who holds, or last held without letting go, the run; None if nobody."""
    try:
        return Owner.model_validate_json((run_path / _OWNER).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
