"""Prints base models, and fetches one with progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from art_core.cli.fetching import fetch
from art_core.cli.run_view import print_json
from art_core.weights import (
    BUILT_IN_MODELS,
    BaseModelFiles,
    default_cache_dir,
    find_built_in,
)


def print_models(*, as_json: bool) -> None:
    """The built-in models, here or to be fetched, and those of the hub's cache."""
    models = list_models()
    if as_json:
        print_json({"cache": str(default_cache_dir()), "models": models})
        return
    table = Table(box=None, header_style="bold")
    for heading in ("model", "from", "here"):
        table.add_column(heading)
    for model in models:
        here = model["path"] or f"no: art models pull {model['name']}"
        table.add_row(escape(model["name"]), model["source"], escape(here))
    console = Console()
    console.print(table)
    console.print("Any Hugging Face id or local folder works as a base model.", style="dim")


def list_models() -> list[dict[str, Any]]:
    """Base models: ``name``, ``source`` and ``path`` (None: to be fetched)."""
    built_in = [
        {"name": name, "source": "built in", "path": _text(find_built_in(name))}
        for name in BUILT_IN_MODELS
    ]
    return built_in + [
        {"name": name, "source": "model hub", "path": str(path)} for name, path in _hub_models()
    ]


def pull_model(spec: str) -> BaseModelFiles:
    """Fetch a base model if it isn't here, showing progress.

    Raises:
        UnknownModelError, WeightsError, StorageError: see `resolve`.
    """
    files = fetch(spec)
    Console().print(f"{escape(files.name)} is in {escape(str(files.path))}", soft_wrap=True)
    return files


def _hub_models() -> list[tuple[str, Path]]:
    """Models in the Hugging Face cache; none where the hub's client isn't installed."""
    try:
        from huggingface_hub import CacheNotFound, scan_cache_dir
    except ImportError:
        return []
    try:
        cache = scan_cache_dir()
    except CacheNotFound:
        return []
    models = [repo for repo in cache.repos if repo.repo_type == "model"]
    return sorted((repo.repo_id, repo.repo_path) for repo in models)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
