"""The run directory: trajectories, metrics, checkpoints, and what a killed run goes on from."""

from art_core.runs.checkpoints import Checkpoint, Manifest
from art_core.runs.directory import RunDirectory
from art_core.runs.files import write_whole
from art_core.runs.identity import RunIdentity
from art_core.runs.metrics import (
    TRAIN_SPLIT,
    VALIDATION_SPLIT,
    MetricsRow,
    group_metrics,
    has_spread,
    own_metrics,
    sampled_tokens,
    scored_rewards,
)
from art_core.runs.names import check_name
from art_core.runs.reader import RunListing, RunReader, list_runs, open_run_readonly
from art_core.runs.retention import Retention

__all__ = [
    "TRAIN_SPLIT",
    "VALIDATION_SPLIT",
    "Checkpoint",
    "Manifest",
    "MetricsRow",
    "Retention",
    "RunDirectory",
    "RunIdentity",
    "RunListing",
    "RunReader",
    "check_name",
    "group_metrics",
    "has_spread",
    "list_runs",
    "open_run_readonly",
    "own_metrics",
    "sampled_tokens",
    "scored_rewards",
    "write_whole",
]
