"""Rollouts: models, attribution of their calls, gathering, and the training loop.

Names are imported from here when they are first used, so that importing one costs
only what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from art_core.rollouts.backend import Backend as Backend
    from art_core.rollouts.backend import RolloutMode as RolloutMode
    from art_core.rollouts.backend import RolloutTicket as RolloutTicket
    from art_core.rollouts.backend import TrainResult as TrainResult
    from art_core.rollouts.capture import untraced as untraced
    from art_core.rollouts.evaluating import evaluate as evaluate
    from art_core.rollouts.gather import gather_trajectories as gather_trajectories
    from art_core.rollouts.gather import gather_trajectory_groups as gather_trajectory_groups
    from art_core.rollouts.helpers import iterate_dataset as iterate_dataset
    from art_core.rollouts.helpers import limit_concurrency as limit_concurrency
    from art_core.rollouts.helpers import retry as retry
    from art_core.rollouts.join import join_records as join_records
    from art_core.rollouts.loop import train as train
    from art_core.rollouts.model import Model as Model
    from art_core.rollouts.model import TrainableModel as TrainableModel
    from art_core.rollouts.playable import Playable as Playable
    from art_core.rollouts.preflight import check as check
    from art_core.rollouts.preflight_report import CheckReport as CheckReport
    from art_core.rollouts.prepare import prepare_groups as prepare_groups
    from art_core.rollouts.report import StepReport as StepReport
    from art_core.rollouts.report import TrainReport as TrainReport
    from art_core.rollouts.rollout import current_trajectory as current_trajectory

_MODULES = {
    "Backend": "backend",
    "CheckReport": "preflight_report",
    "Model": "model",
    "Playable": "playable",
    "RolloutMode": "backend",
    "RolloutTicket": "backend",
    "StepReport": "report",
    "TrainReport": "report",
    "TrainResult": "backend",
    "TrainableModel": "model",
    "check": "preflight",
    "current_trajectory": "rollout",
    "evaluate": "evaluating",
    "gather_trajectories": "gather",
    "gather_trajectory_groups": "gather",
    "iterate_dataset": "helpers",
    "join_records": "join",
    "limit_concurrency": "helpers",
    "prepare_groups": "prepare",
    "retry": "helpers",
    "train": "loop",
    "untraced": "capture",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
