from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import art_core as art
from art_core.server.keys import KeyStore
from tests.art_core.server.processes import ServerProcess


@pytest.fixture(scope="package")
def server(
    tmp_path_factory: pytest.TempPathFactory, tiny_model_folder: Path
) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("server"), tiny_model_folder).start()
    yield process
    assert process.stop() == 0


def new_key(server: ServerProcess, project: str, **limits: int) -> str:
    from uuid import uuid4

    from art_core.server.keys import Limits

    return KeyStore(server.root).create(project, f"k{uuid4().hex}", Limits(**limits))[1]


@pytest.fixture
async def backend(server: ServerProcess, tmp_path: Path) -> AsyncIterator[art.RemoteBackend]:
    key = new_key(server, "shop")
    async with art.RemoteBackend(server.url, key, root=tmp_path / "client") as backend:
        yield backend
