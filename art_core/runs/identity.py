"""``run.json``: what a run is."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from art_core.config import LoraConfig, TrainConfig
from art_core.errors import RunDamagedError, RunMismatchError
from art_core.runs.files import storage_errors, write_whole

FORMAT_VERSION = 2
RUN_FILE = "run.json"

_RECORDED_PACKAGES = ("art-core", "torch", "transformers", "peft", "vllm")

MAY_CHANGE = frozenset(
    {
        "steps",
        "eval_every",
        "eval_rollouts",
        "concurrency",
        "rollout_timeout",
        "retries",
        "max_exceptions",
        "keep_checkpoints",
        "max_tokens_per_pass",
        "gradient_checkpointing",
    }
)
"""Fields of `TrainConfig` that say how, how long or how watched, not what is computed."""


def config_identity(config: TrainConfig) -> dict[str, Any]:
    """The settings that a run can't change on its way, as JSON."""
    return config.model_dump(mode="json", exclude=set(MAY_CHANGE))


def config_hash(config: dict[str, Any]) -> str:
    """SHA-256 of settings, whatever their order."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def installed_versions() -> dict[str, str]:
    """Versions of Python and of the packages that results may depend on."""
    found = {"python": platform.python_version()}
    for package in _RECORDED_PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _to_2(document: dict[str, Any]) -> dict[str, Any]:
    """Format 2 knows runs that were forked; before it there were none."""
    return {**document, "forked_from": None}


_MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _to_2}
"""From each older format to the next."""


def check_format(path: Path, written: int, known: int) -> None:
    """Refuse a file that a newer version wrote.

    Raises:
        RunDamagedError: says which format it has.
    """
    if written > known:
        raise RunDamagedError(
            f"{path} has format {written}; this version reads up to {known}", "Upgrade art-core."
        )


class _Document(BaseModel):
    """The one field that every format has, and the rest."""

    model_config = ConfigDict(extra="allow")

    format_version: int = Field(ge=1)


class ForkedFrom(BaseModel):
    """The run and step that a run begins with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    step: int


class RunIdentity(BaseModel):
    """What was asked for, and by which versions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: int = FORMAT_VERSION
    run_id: str = Field(default_factory=lambda: uuid4().hex)
    project: str
    model: str
    base_model: str | None = None
    """None: a model that isn't trained here."""
    base_digest: str | None = None
    """Tells two base models of the same name apart."""
    lora: LoraConfig | None = None
    config: dict[str, Any] | None = None
    """Settings of the training loop that can't change; None until one begins."""
    created_at: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))
    versions: dict[str, str] = Field(default_factory=installed_versions)
    forked_from: ForkedFrom | None = None

    @property
    def config_hash(self) -> str | None:
        return None if self.config is None else config_hash(self.config)

    def write(self, folder: Path) -> None:
        """Write ``run.json``.

        Raises:
            StorageError: it couldn't be written.
        """
        write_whole(folder / RUN_FILE, [self.model_dump_json(indent=2).encode() + b"\n"])

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read ``run.json``.

        Raises:
            RunDamagedError: there is none, it can't be read, or a newer version wrote it.
        """
        path = folder / RUN_FILE
        try:
            with storage_errors("read", path):
                content = path.read_bytes() if path.exists() else None
            if content is None:
                raise RunDamagedError(
                    f"{folder} has no {RUN_FILE}",
                    "It isn't a run directory, or was damaged: move it away, or restore the file.",
                )
            document = _Document.model_validate_json(content).model_dump()
            check_format(path, document["format_version"], FORMAT_VERSION)
            for version in range(document["format_version"], FORMAT_VERSION):
                document = {**_MIGRATIONS[version](document), "format_version": version + 1}
            return cls.model_validate(document)
        except ValueError as error:
            raise RunDamagedError(
                f"{path} can't be read: {error}", "Restore the file from a copy."
            ) from error

    def check_same_model(self, asked: RunIdentity) -> None:
        """Refuse to go on with another base model or adapter shape.

        A base model may be spelled differently (an id, a folder) if its digest is the same.

        Raises:
            RunMismatchError: names the field, what the run has and what was asked for.
        """
        same_weights = self.base_digest is not None and self.base_digest == asked.base_digest
        differences = {
            "base_model": (self.base_model, asked.base_model),
            "base_digest": (self.base_digest, asked.base_digest),
            "lora": (self.lora, asked.lora),
        }
        if same_weights:
            del differences["base_model"]
        for field, (has, wants) in differences.items():
            if has != wants:
                raise RunMismatchError(
                    f"the run of model {self.model!r} in project {self.project!r} was made with "
                    f"{field} = {has!s}, and now {field} = {wants!s}",
                    "Give the model another name, or pass fresh=True, which moves the old run "
                    "to .art/.archive and starts anew.",
                )

    def with_config(self, config: TrainConfig) -> RunIdentity:
        """This identity with the loop's settings, the first time; the same after that.

        Raises:
            RunMismatchError: the run was begun with other settings.
        """
        asked = config_identity(config)
        if self.config is None:
            return self.model_copy(update={"config": asked})
        # A setting that this version added had, in the run so far, its default.
        before = {**config_identity(TrainConfig()), **self.config}
        changed = [
            f"{name} ({before.get(name)!r} before, {asked[name]!r} now)"
            for name in sorted(asked)
            if before.get(name) != asked[name]
        ]
        if changed:
            raise RunMismatchError(
                f"the run of model {self.model!r} was begun with other settings: "
                + ", ".join(changed),
                "Set them back, give the model another name, or pass fresh=True, which moves "
                "the old run to .art/.archive and starts anew.",
            )
        return self
