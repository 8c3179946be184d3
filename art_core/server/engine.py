"""The shared engine as one project uses it: counted, under names of its own, loaded on demand."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

from art_core.engines.protocol import AdapterRef, Chunk, EngineInfo, InferenceEngine
from art_core.errors import AdapterError, RunError
from art_core.runs.reader import RunReader
from art_core.server.meter import Meter
from art_core.trajectories import SamplingParams

IDLE_ADAPTERS = 4
"""Versions of a model that are kept loaded though they aren't current or pinned."""

IdleVersions = Callable[[str], list[int]]


class ProjectEngine:
    """`InferenceEngine` over another one. A checkpoint is loaded when it is first asked for."""

    def __init__(
        self,
        engine: InferenceEngine,
        project: str,
        folder: Path,
        idle_versions: IdleVersions,
        meter: Meter,
    ) -> None:
        self._engine = engine
        self._project = project
        self._folder = folder
        self._idle_versions = idle_versions
        self._meter = meter
        self._loaded: OrderedDict[AdapterRef, None] = OrderedDict()
        """The least recently used first."""
        self._loading = asyncio.Lock()

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    async def generate(
        self,
        prompt_token_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        adapter: AdapterRef | None = None,
    ) -> AsyncGenerator[Chunk]:
        """See `InferenceEngine.generate`."""
        if adapter is not None:
            await self._ensure_loaded(adapter)
        self._meter.add_tokens(len(prompt_token_ids))
        chunks = self._engine.generate(prompt_token_ids, sampling, adapter=self._own(adapter))
        async with aclosing(chunks):
            async for chunk in chunks:
                self._meter.add_tokens(len(chunk.token_ids))
                yield chunk

    async def load_adapter(self, adapter: AdapterRef, path: Path) -> None:
        """See `InferenceEngine.load_adapter`."""
        await self._engine.load_adapter(self._renamed(adapter), path)
        self._loaded[adapter] = None
        self._loaded.move_to_end(adapter)

    async def unload_adapter(self, adapter: AdapterRef) -> None:
        """See `InferenceEngine.unload_adapter`."""
        if adapter in self._loaded:
            del self._loaded[adapter]
            await self._engine.unload_adapter(self._renamed(adapter))

    async def close(self) -> None:
        """The engine is others', too: it goes on."""

    async def _ensure_loaded(self, adapter: AdapterRef) -> None:
        if adapter in self._loaded:
            self._loaded.move_to_end(adapter)
            return
        async with self._loading:
            if adapter in self._loaded:
                return
            path = await asyncio.to_thread(self._checkpoint, adapter)
            await self.load_adapter(adapter, path)
            idle = set(self._idle_versions(adapter.name))
            unused = [
                each for each in self._loaded if each.name == adapter.name and each.step in idle
            ]
            for each in unused[:-IDLE_ADAPTERS]:
                await self.unload_adapter(each)

    def _checkpoint(self, adapter: AdapterRef) -> Path:
        try:
            checkpoint = RunReader(self._folder / adapter.name).checkpoints.get(adapter.step)
            checkpoint.verify()
        except RunError as error:
            raise AdapterError(f"{adapter} can't be loaded: {error}") from error
        return checkpoint.path

    def _renamed(self, adapter: AdapterRef) -> AdapterRef:
        """Two projects may have models of the same name. No name has a tilde."""
        return AdapterRef(f"{self._project}~{adapter.name}", adapter.step)

    def _own(self, adapter: AdapterRef | None) -> AdapterRef | None:
        return None if adapter is None else self._renamed(adapter)
