"""Seconds spent by phase."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any


class Clock:
    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def report(self, names: Iterable[str]) -> dict[str, Any]:
        """The seconds of the named phases, as ``seconds_<name>``."""
        return {f"seconds_{name}": self.seconds[name] for name in names}

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        """Add the time spent inside to ``name``."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - started
