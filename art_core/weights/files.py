"""What a resolved base model is, and where base models are cached."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from art_core.errors import WeightsError

_SAMPLES = 64
_SAMPLE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModelFiles:
    """A Hugging Face model folder on this machine."""

    path: Path
    name: str
    """What finds it again on this machine: a built-in name, a hub id, or a folder's path."""
    digest: str
    """`fingerprint` of the weights: an adapter trained on these names it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far fetching a model has come."""

    stage: Literal["download", "verify", "convert"]
    done: int
    """Bytes in ``download`` and ``verify``, tensors in ``convert``."""
    total: int


OnProgress = Callable[[Progress], None]


def default_cache_dir() -> Path:
    """``$ART_CACHE``, else ``$XDG_CACHE_HOME/art-core``, else ``~/.cache/art-core``."""
    if explicit := os.environ.get("ART_CACHE"):
        return Path(explicit).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "art-core"


def fingerprint(folder: Path) -> str:
    """Hex digest of the weights in a folder.

    Covers the name and size of every safetensors file, and of each its beginning
    (the header: names, shapes, types) and 64 evenly spaced samples of 64 KiB; a
    whole pass over a large model would take minutes at every start.

    Raises:
        WeightsError: there are no safetensors files.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise WeightsError(
            f"no *.safetensors files in {folder}",
            "Name a folder that model.save_pretrained() has written.",
        )
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name}:{size};".encode())
        with file.open("rb") as stream:
            for sample in range(_SAMPLES):
                stream.seek(sample * max(size - _SAMPLE_BYTES, 0) // (_SAMPLES - 1))
                digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()
