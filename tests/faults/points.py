"""Where the run is killed: named points, reached by watching what the process does.

Files are watched with Python's audit events (PEP 578), which come *before* the
operating system is asked: before a file is opened, renamed or removed. A file is torn
by the kernel itself: its size limit is lowered, and the write that crosses it ends the
process (SIGXFSZ). What leaves no trace on the disk (a gradient, an adapter that is
loaded) is a function that is watched. The package itself knows of none of this.
"""

from __future__ import annotations

import errno
import importlib
import itertools
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TORN_AT = 150
"""Bytes after which a torn file ends."""

_in_agent: dict[str, Callable[[], None]] = {}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def reached(place: str) -> None:
    """The agent says where it is."""
    if place in _in_agent:
        _in_agent[place]()


def in_agent(place: str, number: int, then: Callable[[], None] = die) -> None:
    """When the agent has come to a place for the n-th time."""
    calls = itertools.count(1)
    _in_agent[place] = lambda: then() if next(calls) == number else None


def at_event(number: int, event: str, *parts: str, then: Callable[[], None] = die) -> None:
    """At the n-th audit event of this name whose arguments have all of ``parts`` in them."""
    seen = itertools.count(1)

    def watch(name: str, arguments: tuple[Any, ...]) -> None:
        if name != event:
            return
        text = " ".join(map(str, arguments))
        if all(part in text for part in parts) and next(seen) == number:
            then()

    sys.addaudithook(watch)


def torn(number: int, *parts: str) -> None:
    """In the middle of writing the n-th file whose path has all of ``parts`` in it."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (TORN_AT, TORN_AT))

    at_event(number, "open", *parts, then=limit)


def at_call(number: int, module: str, path: str, *, after: bool = False) -> None:
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


def after_call(number: int, module: str, path: str) -> None:
    at_call(number, module, path, after=True)


TRAINER = "art_core.grpo.trainer"
OPTIMIZER = "art_core.grpo.optimizer"
STORE = "art_core.runs.records"
CHECKPOINTS = "art_core.runs.checkpoints"
DIRECTORY = "art_core.runs.directory"
ADAPTERS = "art_core.engines.embedded.adapters"

POINTS: dict[str, Callable[[int], None]] = {
    "in a held-out rollout": lambda n: in_agent("held-out", n),
    "before held-out trajectories are renamed": lambda n: at_event(n, "os.rename", "/val/"),
    "in a rollout": lambda n: in_agent("rollout", 3 * n),
    "between reward and record": lambda n: in_agent("reward", 2 * n),
    "before a line of the journal": lambda n: at_event(n, "open", "/journal/0"),
    "in a line of the journal": lambda n: torn(n, "/journal/0"),
    "before a record is written": lambda n: at_call(8 * n, STORE, "RecordStore._commit"),
    "after a record is written": lambda n: after_call(8 * n, STORE, "RecordStore._commit"),
    "in the backward pass": lambda n: at_call(n, TRAINER, "add_gradients"),
    "before the optimizer moves": lambda n: at_call(n, OPTIMIZER, "Optimizer.update"),
    "after the optimizer moved": lambda n: after_call(n, OPTIMIZER, "Optimizer.update"),
    "in a file of trajectories": lambda n: torn(n, "/train/", ".tmp"),
    "before trajectories are renamed": lambda n: at_event(n, "os.rename", "/train/"),
    "after a checkpoint's weights": lambda n: at_event(n, "open", ".staging-", "adapter_config"),
    "in a checkpoint's manifest": lambda n: torn(n, ".staging-", "manifest.json"),
    "before a checkpoint is renamed": lambda n: at_event(n, "os.rename", ".staging-"),
    "right after a checkpoint is renamed": lambda n: after_call(n, CHECKPOINTS, "Path.rename"),
    "before the metrics of a step": lambda n: after_call(n, CHECKPOINTS, "CheckpointStore.publish"),
    "before a step is indexed": lambda n: at_event(n, "open", "steps.jsonl"),
    "after a commit": lambda n: after_call(n, DIRECTORY, "RunDirectory.commit"),
    "before an adapter is loaded": lambda n: at_call(n, ADAPTERS, "AdapterStore.load"),
    "after an adapter is loaded": lambda n: after_call(n, ADAPTERS, "AdapterStore.load"),
    "before a checkpoint is removed": lambda n: at_event(n, "os.rename", ".removing-"),
    "while a checkpoint is removed": lambda n: at_event(n, "os.remove", "trainer.json"),
}


def failing_rename(number: int, *, done: bool) -> None:
    """A checkpoint's rename fails as on NFS: or is done, and its answer lost (RFC 1813)."""
    original = Path.rename
    calls = itertools.count(1)

    def rename(path: Path, target: Path) -> Path:
        if ".staging-" in path.name and next(calls) == number:
            if done:
                original(path, target)
            raise OSError(errno.ENOENT if done else errno.ESTALE, "a stale file handle")
        return original(path, target)

    Path.rename = rename  # type: ignore[method-assign,assignment]


def jumping_clock(hours: int) -> None:
    """Each look at the clock finds it set an hour back or forth."""
    original, looks = time.time, itertools.count()
    time.time = lambda: original() + (-1) ** next(looks) * hours * 3600


def forking_agent(number: int) -> None:
    """The agent starts a worker by fork, as multiprocessing does, and waits for it."""

    def fork() -> None:
        worker = multiprocessing.get_context("fork").Process(target=sum, args=([1, 2],))
        worker.start()
        worker.join()
        if worker.exitcode != 0:
            raise RuntimeError(f"the worker ended with {worker.exitcode}")

    in_agent("rollout", number, then=fork)


FAULTS: dict[str, Callable[[int], None]] = {
    "a rename fails": lambda n: failing_rename(n, done=False),
    "a rename is done and fails": lambda n: failing_rename(n, done=True),
    "the clock jumps": jumping_clock,
    "the agent forks": forking_agent,
}


def arm(point: str, number: int) -> None:
    """Make this process end itself at a point, or suffer a fault, at the n-th time."""
    (POINTS | FAULTS)[point](number)
