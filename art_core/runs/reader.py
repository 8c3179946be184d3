"""Runs to look at: reading a run directory without locking or changing it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from art_core.errors import RunDamagedError, RunError
from art_core.runs.checkpoints import CheckpointStore
from art_core.runs.groups import Journal, TrajectoryFiles
from art_core.runs.identity import RUN_FILE, RunIdentity
from art_core.runs.lock import read_owner
from art_core.runs.metrics import MetricsLog

DEFAULT_ROOT = Path(".art")
ARCHIVE = ".archive"


class RunReader:
    """A run directory, open for reading; safe beside the process that writes it.

    What is half-written (a torn line, a checkpoint without its name) isn't seen.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.identity = RunIdentity.read(path)
        self.metrics = MetricsLog(path / "metrics.jsonl")
        self.trajectories = TrajectoryFiles(path / "trajectories")
        self.checkpoints = CheckpointStore(path / "checkpoints", self.identity.run_id)
        self.journal = Journal(path / "journal")

    @property
    def records_path(self) -> Path:
        """The database of completions, which the gateway writes."""
        return self.path / "records.sqlite"

    @property
    def steps_path(self) -> Path:
        """The log of which groups each step was trained on."""
        return self.path / "steps.jsonl"

    @property
    def plot_path(self) -> Path:
        """The picture of the reward curve, drawn by the training loop."""
        return self.path / "reward_curve.png"

    @property
    def step(self) -> int:
        """How many steps the run has committed."""
        latest = self.checkpoints.latest()
        return latest.step if latest is not None else 0

    @property
    def active(self) -> bool:
        """Whether a process on this host is writing it, as far as can be seen."""
        owner = read_owner(self.path)
        return owner is not None and owner.alive is True


@dataclass(slots=True)
class RunListing:
    """The runs under a root, and the folders that look like runs and can't be read."""

    runs: list[RunReader] = field(default_factory=list[RunReader])
    damaged: list[RunDamagedError] = field(default_factory=list[RunDamagedError])


def list_runs(root: Path = DEFAULT_ROOT) -> RunListing:
    """The runs under ``root``, by project and model; archived ones are left out."""
    listing = RunListing()
    for path in sorted(root.glob(f"[!.]*/[!.]*/{RUN_FILE}")):
        try:
            listing.runs.append(RunReader(path.parent))
        except RunDamagedError as error:
            listing.damaged.append(error)
    return listing


def open_run_readonly(name: str, root: Path = DEFAULT_ROOT) -> RunReader:
    """A run by ``model``, ``project/model``, run id (or its beginning), or directory.

    Raises:
        RunError: there is none, or more than one; names those that there are.
        RunDamagedError: its ``run.json`` can't be read.
    """
    folder = Path(name)
    if (folder / RUN_FILE).is_file():
        return RunReader(folder)
    listing = list_runs(root)
    found = [run for run in listing.runs if _is_called(run, name)]
    if len(found) == 1:
        return found[0]
    if not found:
        _refuse_damaged(name, root)
    names = [f"{run.identity.project}/{run.identity.model}" for run in found or listing.runs]
    problem = f"{len(found)} runs are called" if found else "there is no run called"
    raise RunError(f"{problem} {name!r} under {root}", f"Runs: {', '.join(names) or 'none'}.")


def _refuse_damaged(name: str, root: Path) -> None:
    """Say what is wrong with a run that can only be told by its folder's name."""
    for path in root.glob(f"[!.]*/[!.]*/{RUN_FILE}"):
        if name in (path.parent.name, f"{path.parent.parent.name}/{path.parent.name}"):
            RunReader(path.parent)


def _is_called(run: RunReader, name: str) -> bool:
    identity = run.identity
    return name in (identity.model, f"{identity.project}/{identity.model}") or (
        len(name) >= 6 and identity.run_id.startswith(name)
    )
