"""What the gateway serves under one model name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from art_core.chat.protocol import ChatFormat
from art_core.engines.protocol import AdapterRef, InferenceEngine
from art_core.errors import ConfigError
from art_core.gateway.kept import KeptResponses
from art_core.runs.records import RecordStore

if TYPE_CHECKING:
    from art_core.gateway.call import Call


BEST = ":best"


def version_of(adapter: AdapterRef | None) -> int:
    """The policy version that an adapter is; the bare base model is version 0."""
    return 0 if adapter is None else adapter.step


@dataclass(eq=False, slots=True, kw_only=True)
class Policy:
    """A base model and the versions of its adapter, with the store that its calls go to."""

    name: str
    chat: ChatFormat
    engine: InferenceEngine
    records: RecordStore
    project: str | None = None
    """It can be asked for as ``project/name``, too."""
    current: AdapterRef | None = None
    """What new rollouts are pinned to. None: the bare base model."""
    best: AdapterRef | None = field(init=False, default=None)
    """What ``name:best`` is; None: nothing."""
    versions: dict[int, AdapterRef | None] = field(init=False)
    """Those that can be asked for as ``name@step``."""
    quarantined: int = field(init=False, default=0)
    """Completions since the start that belong to no rollout."""
    responses: KeptResponses = field(init=False)
    """Those of requests outside rollouts."""
    calls: set[Call] = field(init=False, default_factory=set["Call"])
    """In flight."""
    engine_error: str | None = field(init=False, default=None)
    """Why the engine died, if it did."""

    def __post_init__(self) -> None:
        self.responses = KeptResponses(limit=1000)
        self.versions = {version_of(self.current): self.current}

    def serve(self, adapter: AdapterRef | None) -> None:
        """Make an adapter the current one."""
        # Another dictionary, not a changed one: requests read it in another thread.
        self.versions = {**self.versions, version_of(adapter): adapter}
        self.current = adapter

    def retire(self, version: int) -> None:
        """No longer offer a version.

        Raises:
            ConfigError: it is the current one.
        """
        if version == version_of(self.current):
            raise ConfigError(f"{self.name}@{version} is the version being served")
        self.versions = {step: ref for step, ref in self.versions.items() if step != version}

    def model_names(self) -> list[str]:
        names = [self.name, *(f"{self.name}@{version}" for version in sorted(self.versions))]
        return names if self.best is None else [*names, f"{self.name}{BEST}"]
