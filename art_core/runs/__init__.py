"""The run directory: trajectories, metrics, checkpoints, and what a killed run goes on from."""

from art_core.runs.checkpoints import Checkpoint, Manifest
from art_core.runs.directory import RunDirectory
from art_core.runs.files import write_whole
from art_core.runs.fork import fork_run
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
from art_core.runs.verify import Finding, verify_run

__all__ = [
    "TRAIN_SPLIT",
    "VALIDATION_SPLIT",
    "Checkpoint",
    "Finding",
    "Manifest",
    "MetricsRow",
    "Retention",
    "RunDirectory",
    "RunIdentity",
    "RunListing",
    "RunReader",
    "check_name",
    "fork_run",
    "group_metrics",
    "has_spread",
    "list_runs",
    "open_run_readonly",
    "own_metrics",
    "sampled_tokens",
    "scored_rewards",
    "verify_run",
    "write_whole",
]
