# pyright: reportUnknownVariableType=false
"""From what the user wrote to a model folder on this machine."""

from __future__ import annotations

import errno
from pathlib import Path

from art_core.errors import StorageError, UnknownModelError, WeightsError
from art_core.weights import smollm2
from art_core.weights.files import BaseModelFiles, OnProgress, default_cache_dir, fingerprint

BUILT_IN_MODELS = (smollm2.NAME,)
"""Names that need no model hub."""

_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


def resolve(
    spec: str, *, on_progress: OnProgress | None = None, cache_dir: Path | None = None
) -> BaseModelFiles:
    """Find a base model, fetching it if this machine doesn't have it yet.

    Args:
        spec: a built-in name (``smollm2-135m``), a local folder, or a Hugging Face id.
        on_progress: called from this thread while a built-in model is fetched.
        cache_dir: where built-in models are kept; see `default_cache_dir`. Models
            from the hub stay in the hub's own cache.

    Raises:
        UnknownModelError: ``spec`` is none of the three.
        WeightsError: the model can't be fetched or isn't what it should be.
        StorageError: the disk is full or can't be written.
    """
    if spec in BUILT_IN_MODELS:
        return _resolve_built_in(spec, on_progress, cache_dir or default_cache_dir())
    folder = Path(spec).expanduser()
    if spec and folder.is_dir():
        return _describe(folder.resolve(), str(folder.resolve()))
    if spec.count("/") == 1 and not spec.startswith((".", "/", "~")):
        return _describe(_fetch_from_hub(spec), spec)
    raise UnknownModelError(
        f"base model {spec!r} is neither built in, nor a folder, nor a Hugging Face id",
        f"Use one of {', '.join(BUILT_IN_MODELS)}, a folder, or an id such as 'Qwen/Qwen3-4B'.",
    )


def find_built_in(name: str, cache_dir: Path | None = None) -> Path | None:
    """The folder of a built-in model, or None where this machine doesn't have it yet.

    Raises:
        UnknownModelError: ``name`` isn't built in.
    """
    if name not in BUILT_IN_MODELS:
        raise UnknownModelError(
            f"{name!r} isn't a built-in model", f"There are: {', '.join(BUILT_IN_MODELS)}."
        )
    folder = smollm2.location(cache_dir or default_cache_dir())
    return folder if folder.is_dir() else None


def _resolve_built_in(name: str, on_progress: OnProgress | None, cache_dir: Path) -> BaseModelFiles:
    try:
        folder = smollm2.ensure(cache_dir, on_progress or _ignore)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        remedy = "Set ART_CACHE to a folder with 1 GB free that you may write to."
        what = "the disk is full" if error.errno == errno.ENOSPC else str(error)
        raise StorageError(f"can't keep {name} in {cache_dir}: {what}", remedy) from error
    return _describe(folder, name)


def _ignore(progress: object) -> None:
    del progress


def _describe(folder: Path, name: str) -> BaseModelFiles:
    if not (folder / "config.json").is_file():
        raise WeightsError(
            f"{folder} has no config.json",
            "Name a folder that model.save_pretrained() has written.",
        )
    return BaseModelFiles(path=folder, name=name, digest=fingerprint(folder))


def _fetch_from_hub(repo_id: str) -> Path:
    # Imported here: it's part of an extra, and a built-in or local model doesn't need it.
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(snapshot_download(repo_id, allow_patterns=_HUB_FILES))
    except GatedRepoError as error:
        raise WeightsError(
            f"{repo_id} is gated",
            "Accept its license on the hub and log in with `hf auth login`.",
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise UnknownModelError(
            f"the model hub has no {repo_id!r}, and there is no such folder here",
            "Check the spelling; a private model needs `hf auth login`.",
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, httpx.HTTPError) as error:
        raise WeightsError(
            f"the model hub can't be reached and {repo_id} isn't in its cache on this machine",
            "Connect to the hub, name a local folder, or use the built-in 'smollm2-135m'.",
        ) from error
