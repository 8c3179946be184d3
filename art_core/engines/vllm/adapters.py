"""Which adapter versions the server has, under which names, and who uses them."""

from __future__ import annotations

import os
import secrets
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from art_core.engines.protocol import AdapterRef
from art_core.engines.vllm.api import ServerGoneError, VllmApi
from art_core.errors import AdapterError
from art_core.runs.files import make_folder, storage_errors

_FILES = ("adapter_config.json", "adapter_model.safetensors")


@dataclass(slots=True, eq=False)
class Version:
    """One adapter version that is loaded."""

    source: Path
    copy: Path
    """Where the server reads it, at a restart too: the checkpoint may be gone by then."""
    served_as: str
    """Never used twice: vLLM keys its prefix cache by this name, and a second adapter of the
    same name would be served with the KV of the first."""
    users: int = 0
    retired: bool = False


class Adapters:
    """All methods may be called from any thread.

    Args:
        folder: must be on a disk that the server sees under the same path.
        on_server: calls a function with the server's URL, again after a restart.
    """

    def __init__(
        self, api: VllmApi, folder: Path, on_server: Callable[[Callable[[str], None]], None]
    ) -> None:
        self._api = api
        self._folder = folder
        self._on_server = on_server
        self._lock = threading.Condition()
        self._changing = threading.Lock()
        self._versions: dict[AdapterRef, Version] = {}

    def acquire(self, ref: AdapterRef | None) -> Version | None:
        """A request is going to use this version: keep it until `release`.

        Raises:
            AdapterError: it isn't loaded, or is being unloaded.
        """
        if ref is None:
            return None
        with self._lock:
            version = self._versions.get(ref)
            if version is None or version.retired:
                loaded = ", ".join(str(r) for r, v in self._versions.items() if not v.retired)
                raise AdapterError(
                    f"adapter {ref} isn't loaded (loaded: {loaded or 'none'})",
                    "Call load_adapter first.",
                )
            version.users += 1
            return version

    def release(self, version: Version | None) -> None:
        if version is not None:
            with self._lock:
                version.users -= 1
                self._lock.notify_all()

    def load(self, ref: AdapterRef, source: Path) -> None:
        """Raises AdapterError: see `InferenceEngine.load_adapter`."""
        source = source.resolve()
        with self._changing:
            known = self._versions.get(ref)
            if known is not None:
                if known.source != source or known.retired:
                    where = "being unloaded" if known.retired else f"loaded from {known.source}"
                    raise AdapterError(
                        f"adapter {ref} is {where}, can't load it from {source}",
                        "Give the new weights a step of their own.",
                    )
                return
            served_as = f"{ref}.{secrets.token_hex(4)}"
            version = Version(source, _copy(source, self._folder / served_as), served_as)
            try:
                self._on_server(lambda url: self._api.load_adapter(url, served_as, version.copy))
            except BaseException:
                shutil.rmtree(version.copy, ignore_errors=True)
                raise
            with self._lock:
                self._versions[ref] = version

    def unload(self, ref: AdapterRef) -> None:
        """Take no new requests for a version, wait until the last has finished, drop it.

        Raises:
            AdapterError: it isn't loaded.
        """
        with self._lock:
            version = self._versions.get(ref)
            if version is None or version.retired:
                raise AdapterError(f"adapter {ref} isn't loaded, can't unload it")
            version.retired = True
            self._lock.wait_for(lambda: version.users == 0)
        with self._changing:
            self._on_server(lambda url: self._api.unload_adapter(url, version.served_as))
            with self._lock:
                del self._versions[ref]
            shutil.rmtree(version.copy, ignore_errors=True)

    def restore(self, url: str) -> None:
        """Load what a server that was started again lacks."""
        with self._lock:
            versions = list(self._versions.values())
        if not versions:
            return
        there = {model["id"] for model in self._api.models(url)}
        for version in versions:
            if version.served_as not in there:
                self._api.load_adapter(url, version.served_as, version.copy)

    def drop_all(self, url: str | None) -> None:
        """Forget everything; ``url``: of a server that goes on, to be left as it was."""
        with self._lock:
            versions, self._versions = list(self._versions.values()), {}
        for version in versions:
            if url is not None:
                try:
                    self._api.unload_adapter(url, version.served_as)
                except ServerGoneError:
                    url = None  # nothing is loaded there any more
            shutil.rmtree(version.copy, ignore_errors=True)


def _copy(source: Path, target: Path) -> Path:
    """Link the adapter's two files, or copy them to another disk."""
    missing = [name for name in _FILES if not (source / name).is_file()]
    if missing:
        raise AdapterError(
            f"{source} has no {' and no '.join(missing)}",
            "Name a folder that PEFT's save_pretrained() has written.",
        )
    make_folder(target)
    with storage_errors("keep an adapter in", target):
        for name in _FILES:
            try:
                os.link(source / name, target / name)
            except OSError:
                shutil.copyfile(source / name, target / name)
    return target
