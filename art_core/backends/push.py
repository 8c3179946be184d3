# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""An exported folder to a Hugging Face repo, or to an S3-compatible store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from art_core.errors import ConfigError, MissingExtraError, StorageError

OnFile = Callable[[str], None]
_INSTALL = "Install: pip install 'art-core[push]'."
_LAST = ("config.json", "adapter_config.json")
"""Sent after all others: whoever sees one of them finds the rest there, too."""


def push(folder: Path, target: str, on_file: OnFile | None = None) -> str:
    """Upload a folder's files; returns where they are now.

    Args:
        target: ``hf://owner/repo``, created private if there is none, or
            ``s3://bucket/prefix``. Credentials and endpoints are found as the two client
            libraries find them (``HF_TOKEN``, ``AWS_ENDPOINT_URL``, …).
        on_file: told each file's name before it is sent.

    Raises:
        ConfigError: the folder has no files, or the target can't be used.
        StorageError: the store refused, or can't be reached.
        MissingExtraError: the extra ``push`` isn't installed.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if not files:
        raise ConfigError(f"{folder} has no files", "Export a checkpoint first: art export.")
    files.sort(key=lambda path: path.name in _LAST)
    parts = urlsplit(target)
    place, rest = parts.netloc, parts.path.strip("/")
    if parts.scheme == "hf" and place and rest and "/" not in rest:
        return _push_to_hub(folder, f"{place}/{rest}")
    if parts.scheme == "s3" and place:
        return _push_to_s3(folder, files, place, rest, on_file or _ignore)
    raise ConfigError(f"target is {target!r}", "Write hf://owner/repo or s3://bucket/prefix.")


def _push_to_hub(folder: Path, repo: str) -> str:
    try:
        import httpx
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    except ImportError as error:
        raise MissingExtraError("huggingface_hub isn't installed", _INSTALL) from error
    api = HfApi()
    try:
        api.create_repo(repo, private=True, exist_ok=True)
        return str(api.upload_folder(repo_id=repo, folder_path=str(folder)))
    except (HfHubHTTPError, HFValidationError, httpx.HTTPError, OSError) as error:
        raise StorageError(
            f"the model hub didn't take {repo}: {error}",
            "Check the name, the network, and that 'hf auth whoami' may write there.",
        ) from error


def _push_to_s3(folder: Path, files: list[Path], bucket: str, prefix: str, on_file: OnFile) -> str:
    try:
        import boto3  # pyright: ignore[reportMissingTypeStubs]
        from boto3.exceptions import Boto3Error  # pyright: ignore[reportMissingTypeStubs]
        from botocore.exceptions import (  # pyright: ignore[reportMissingTypeStubs]
            BotoCoreError,
            ClientError,
        )
    except ImportError as error:
        raise MissingExtraError("boto3 isn't installed", _INSTALL) from error
    try:
        client: Any = boto3.client("s3")
        for path in files:
            name = path.relative_to(folder).as_posix()
            on_file(name)
            client.upload_file(str(path), bucket, f"{prefix}/{name}".lstrip("/"))
    except (Boto3Error, BotoCoreError, ClientError) as error:
        raise StorageError(
            f"s3://{bucket}/{prefix} can't be written: {error}",
            "Check the bucket, the credentials and AWS_ENDPOINT_URL.",
        ) from error
    return f"s3://{bucket}/{prefix}"


def _ignore(name: str) -> None:
    del name
