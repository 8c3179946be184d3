from __future__ import annotations

from tests.art_core.server.conftest import backend, server

__all__ = ["backend", "server"]
