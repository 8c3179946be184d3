"""What downstream code may rely on: names, light imports, one error tree."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import pytest

import art_core
from art_core import errors

PUBLIC_NAMES = {
    "ArtError",
    "Backend",
    "CaptureConfig",
    "Completion",
    "History",
    "LocalBackend",
    "LoraConfig",
    "Model",
    "RemoteBackend",
    "SftConfig",
    "StepConfig",
    "TrainConfig",
    "TrainResult",
    "TrainableModel",
    "Trajectory",
    "TrajectoryGroup",
    "TrajectoryStatus",
    "WarmStart",
    "__version__",
    "check",
    "evaluate",
    "gather_trajectories",
    "gather_trajectory_groups",
    "iterate_dataset",
    "limit_concurrency",
    "retry",
    "train",
    "untraced",
}

ERROR_CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, errors.ArtError)
]


def test_the_public_names_are_exactly_these() -> None:
    assert set(art_core.__all__) == PUBLIC_NAMES


@pytest.mark.parametrize("name", sorted(PUBLIC_NAMES))
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(art_core, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        art_core.nonsense  # type: ignore[attr-defined]  # noqa: B018


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_importing_loads_nothing_heavy() -> None:
    heavy = {"torch", "transformers", "openai", "fastapi", "litellm", "peft", "matplotlib"}
    loaded = run_python("import art_core, sys; print(*{m.split('.')[0] for m in sys.modules})")
    assert not heavy & set(loaded.split())


def test_importing_has_no_side_effects() -> None:
    code = """
import logging, os, warnings, httpx, concurrent.futures as futures
def state():
    return (dict(os.environ), list(logging.root.handlers), list(warnings.filters),
            httpx.Client.send, httpx.AsyncClient.send, futures.ThreadPoolExecutor.submit)
before = state()
import art_core
for name in ("Trajectory", "TrainableModel", "train", "LocalBackend"):
    getattr(art_core, name)
print(state() == before)
"""
    assert run_python(code) == "True"


@pytest.mark.parametrize("cls", ERROR_CLASSES, ids=lambda cls: cls.__name__)
def test_errors_pickle_and_say_the_remedy(cls: type[errors.ArtError]) -> None:
    error = pickle.loads(pickle.dumps(cls("port 80 is taken.", "Choose another.")))  # noqa: S301
    assert type(error) is cls
    assert str(error) == "port 80 is taken. Choose another."
    assert (error.problem, error.remedy) == ("port 80 is taken.", "Choose another.")


def test_the_drawn_tree_names_every_error() -> None:
    assert errors.__doc__ is not None
    missing = [cls.__name__ for cls in ERROR_CLASSES if cls.__name__ not in errors.__doc__]
    assert not missing
