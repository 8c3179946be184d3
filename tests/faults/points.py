"""Where the run is killed: named points, reached by watching what the process does.

Files are watched with Python's audit events (PEP 578), which come *before* the
operating system is asked: before a file is opened, renamed or removed. A file is torn
by the kernel itself: its size limit is lowered, and the write that crosses it ends the
process (SIGXFSZ). What leaves no trace on the disk (a gradient, an adapter that is
loaded) is a function that is watched. The package itself knows of none of this.
"""

from __future__ import annotations

import importlib
import itertools
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

TORN_AT = 150
"""Bytes after which a torn file ends."""

_counts: dict[str, itertools.count[int]] = {}
_wanted: tuple[str, int] | None = None


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def reached(place: str) -> None:
    """The agent says where it is."""
    if _wanted is not None and _wanted[0] == place and next(_counts[place]) == _wanted[1]:
        die()


def in_agent(place: str, number: int) -> None:
    global _wanted
    _wanted, _counts[place] = (place, number), itertools.count(1)


def at_event(event: str, *parts: str, number: int = 1, then: Callable[[], None] = die) -> None:
    """At the n-th audit event of this name whose arguments have all of ``parts`` in them."""
    seen = itertools.count(1)

    def watch(name: str, arguments: tuple[Any, ...]) -> None:
        if name != event:
            return
        text = " ".join(
            os.fsdecode(a) for a in arguments if isinstance(a, str | bytes | os.PathLike)
        )
        if all(part in text for part in parts) and next(seen) == number:
            then()

    sys.addaudithook(watch)


def torn(*parts: str, number: int = 1) -> None:
    """In the middle of writing the n-th file whose path has all of ``parts`` in it."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (TORN_AT, TORN_AT))

    at_event("open", *parts, number=number, then=limit)


def at_call(module: str, path: str, number: int = 1, *, after: bool = False) -> None:
    """At the n-th call of a function or method, before or after it did its work."""
    owner: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    original: Callable[..., Any] = getattr(owner, name)
    calls = itertools.count(1)

    def dying(*arguments: Any, **options: Any) -> Any:
        chosen = next(calls) == number
        if chosen and not after:
            die()
        result = original(*arguments, **options)
        if chosen and after:
            die()
        return result

    setattr(owner, name, dying)


TRAINER = "art_core.grpo.trainer"
ADAPTERS = "art_core.engines.embedded.adapters"

POINTS: dict[str, Callable[[], None]] = {
    "in a held-out rollout": lambda: in_agent("held-out", 1),
    "before held-out trajectories are renamed": lambda: at_event("os.rename", "/val/"),
    "in a rollout": lambda: in_agent("rollout", 3),
    "in a rollout of the last step": lambda: in_agent("rollout", 27),
    "between reward and record": lambda: in_agent("reward", 6),
    "before a line of the journal": lambda: at_event("open", "/journal/0"),
    "in a line of the journal": lambda: torn("/journal/0"),
    "before a record is written": lambda: at_call(
        "art_core.runs.records", "RecordStore._commit", 9
    ),
    "after a record is written": lambda: at_call(
        "art_core.runs.records", "RecordStore._commit", 9, after=True
    ),
    "in the backward pass": lambda: at_call(TRAINER, "add_gradients"),
    "before the optimizer moves": lambda: at_call("art_core.grpo.optimizer", "Optimizer.update", 2),
    "after the optimizer moved": lambda: at_call(
        "art_core.grpo.optimizer", "Optimizer.update", 2, after=True
    ),
    "in a file of trajectories": lambda: torn("/train/", ".tmp", number=2),
    "before trajectories are renamed": lambda: at_event("os.rename", "/train/", number=2),
    "in a checkpoint's manifest": lambda: torn("manifest.json.", number=2),
    "after a checkpoint's first file": lambda: at_event("open", ".staging-", "adapter_config.json"),
    "before a checkpoint is renamed": lambda: at_event("os.rename", ".staging-", number=2),
    "right after a checkpoint is renamed": lambda: at_call(
        "art_core.runs.checkpoints", "Path.rename", 2, after=True
    ),
    "before the metrics of a step": lambda: at_event("open", "metrics.jsonl", number=2),
    "before a step is indexed": lambda: at_event("open", "steps.jsonl", number=2),
    "after a commit": lambda: at_call(
        "art_core.runs.directory", "RunDirectory.commit", 2, after=True
    ),
    "before an adapter is loaded": lambda: at_call(ADAPTERS, "AdapterStore.load", 2),
    "after an adapter is loaded": lambda: at_call(ADAPTERS, "AdapterStore.load", 2, after=True),
    "before a checkpoint is retired": lambda: at_event("os.rename", ".removing-"),
    "while a checkpoint is removed": lambda: at_event("os.remove", "optimizer.safetensors"),
}


def arm(point: str) -> None:
    """Make this process end itself at a point."""
    POINTS[point]()
