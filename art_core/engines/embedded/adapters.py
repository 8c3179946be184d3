"""Which policy versions are loaded, and which of them as merged copies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from art_core.engines.embedded.lora import Delta
from art_core.engines.embedded.model import ServedModel
from art_core.engines.embedded.models import ModelFactory
from art_core.engines.protocol import AdapterRef
from art_core.errors import AdapterError

_CHECK_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class _Version:
    path: Path
    deltas: Mapping[str, Delta]
    model: ServedModel
    copied: int
    """Bytes of weight copies; 0 when not merged."""
    users: int = 0
    retired: bool = False


class AdapterStore:
    """Versions by name and step. Loading happens on the caller's thread.

    Args:
        copy_budget: bytes of weight copies allowed. The newest versions are merged
            copies; when these don't fit any more, the oldest go on unmerged.
    """

    def __init__(self, factory: ModelFactory, copy_budget: int) -> None:
        self._factory = factory
        self._budget = copy_budget
        self._lock = threading.Condition()
        self._loading = threading.Lock()
        self._versions: dict[AdapterRef, _Version] = {}
        self._base: ServedModel | None = None
        self._base_copied = 0

    def acquire(self, ref: AdapterRef | None) -> None:
        """A request is going to use this version: keep it until `release`.

        Raises:
            AdapterError: it isn't loaded, or is being unloaded.
        """
        if ref is None:
            return
        with self._lock:
            version = self._versions.get(ref)
            if version is None or version.retired:
                loaded = ", ".join(str(r) for r, v in self._versions.items() if not v.retired)
                raise AdapterError(
                    f"adapter {ref} isn't loaded (loaded: {loaded or 'none'})",
                    "Call load_adapter first.",
                )
            version.users += 1

    def release(self, ref: AdapterRef | None) -> None:
        if ref is not None:
            with self._lock:
                self._versions[ref].users -= 1
                self._lock.notify_all()

    def model(self, ref: AdapterRef | None) -> ServedModel:
        """The model of an acquired version, or of the base."""
        if ref is not None:
            return self._versions[ref].model
        if self._base is None:
            size = self._factory.base_copy_bytes
            copy = 0 < size <= self._budget - self._copied_bytes()
            self._base = self._factory.base(copy=copy)
            self._base_copied = size if copy else 0
        return self._base

    def load(self, ref: AdapterRef, path: Path) -> None:
        """Read, check and if possible merge an adapter; takes a while.

        Raises:
            AdapterError: see `InferenceEngine.load_adapter`.
        """
        with self._loading:
            path = path.resolve()
            existing = self._versions.get(ref)
            if existing is not None:
                if existing.path != path or existing.retired:
                    where = "being unloaded" if existing.retired else f"loaded from {existing.path}"
                    raise AdapterError(
                        f"adapter {ref} is {where}, can't load it from {path}",
                        "Give the new weights a step of their own.",
                    )
                return
            deltas = self._factory.read(path)
            size = self._factory.copy_bytes(deltas)
            merge = self._make_space(size)
            model = self._factory.merged(deltas) if merge else self._factory.unmerged(deltas)
            with self._lock:
                self._versions[ref] = _Version(path, deltas, model, size if merge else 0)

    def retire(self, ref: AdapterRef, check: Callable[[], None]) -> None:
        """Take no new requests for this version, and wait until the last has finished.

        ``check`` is called meanwhile, and raises if the engine hangs: it never will.

        Raises:
            AdapterError: it isn't loaded.
        """
        with self._lock:
            version = self._versions.get(ref)
            if version is None or version.retired:
                raise AdapterError(f"adapter {ref} isn't loaded, can't unload it")
            version.retired = True
            while not self._lock.wait_for(lambda: version.users == 0, timeout=_CHECK_SECONDS):
                check()

    def drop(self, ref: AdapterRef) -> None:
        """Free a retired version."""
        with self._lock:
            del self._versions[ref]

    def _make_space(self, size: int) -> bool:
        """Unmerge the oldest versions until ``size`` more bytes fit; whether they do."""
        if size > self._budget:
            return False
        while self._copied_bytes() + size > self._budget:
            oldest = next((v for v in self._versions.values() if v.copied), None)
            if oldest is None:
                return False  # the base's own copy is in the way, and stays
            # The engine picks the model up at its next step: KV of either form serves both.
            oldest.model = self._factory.unmerged(oldest.deltas)
            oldest.copied = 0
        return True

    def _copied_bytes(self) -> int:
        with self._lock:
            return self._base_copied + sum(v.copied for v in self._versions.values())
