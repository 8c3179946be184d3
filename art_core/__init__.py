"""ART Core: reinforcement learning for the agent you already have.

Everything public is reachable from here and loaded on first use, so importing
the package is quick and changes nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from art_core.backends.local import LocalBackend as LocalBackend
    from art_core.backends.remote import RemoteBackend as RemoteBackend
    from art_core.config import CaptureConfig as CaptureConfig
    from art_core.config import LoraConfig as LoraConfig
    from art_core.config import SftConfig as SftConfig
    from art_core.config import StepConfig as StepConfig
    from art_core.config import TrainConfig as TrainConfig
    from art_core.config import WarmStart as WarmStart
    from art_core.errors import ArtError as ArtError
    from art_core.rollouts import Backend as Backend
    from art_core.rollouts import Model as Model
    from art_core.rollouts import TrainableModel as TrainableModel
    from art_core.rollouts import TrainResult as TrainResult
    from art_core.rollouts import check as check
    from art_core.rollouts import evaluate as evaluate
    from art_core.rollouts import gather_trajectories as gather_trajectories
    from art_core.rollouts import gather_trajectory_groups as gather_trajectory_groups
    from art_core.rollouts import iterate_dataset as iterate_dataset
    from art_core.rollouts import limit_concurrency as limit_concurrency
    from art_core.rollouts import retry as retry
    from art_core.rollouts import train as train
    from art_core.rollouts import untraced as untraced
    from art_core.trajectories import Completion as Completion
    from art_core.trajectories import History as History
    from art_core.trajectories import Trajectory as Trajectory
    from art_core.trajectories import TrajectoryGroup as TrajectoryGroup
    from art_core.trajectories import TrajectoryStatus as TrajectoryStatus

_HOMES = {
    "art_core.backends.local": ("LocalBackend",),
    "art_core.backends.remote": ("RemoteBackend",),
    "art_core.config": (
        "CaptureConfig",
        "LoraConfig",
        "SftConfig",
        "StepConfig",
        "TrainConfig",
        "WarmStart",
    ),
    "art_core.errors": ("ArtError",),
    "art_core.rollouts": (
        "Backend",
        "Model",
        "TrainResult",
        "TrainableModel",
        "check",
        "evaluate",
        "gather_trajectories",
        "gather_trajectory_groups",
        "iterate_dataset",
        "limit_concurrency",
        "retry",
        "train",
        "untraced",
    ),
    "art_core.trajectories": (
        "Completion",
        "History",
        "Trajectory",
        "TrajectoryGroup",
        "TrajectoryStatus",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [
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
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'art_core' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
