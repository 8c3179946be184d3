from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from art_core.runs import RunDirectory
from art_core.trajectories import History, Trajectory, TrajectoryGroup

MakeRun = Callable[..., RunDirectory]
MakeGroup = Callable[..., TrajectoryGroup]


@pytest.fixture
def make_run(tmp_path: Path) -> Generator[MakeRun]:
    """Opens the run directory of one model; closed at the end."""
    opened: list[RunDirectory] = []

    def make(**options: Any) -> RunDirectory:
        settings: dict[str, Any] = {
            "project": "shop",
            "model": "bot",
            "base_model": "tiny",
            "base_digest": "d1",
        }
        settings |= options
        opened.append(RunDirectory.open(tmp_path / ".art", **settings))
        return opened[-1]

    yield make
    for run in opened:
        run.close()


@pytest.fixture
def make_group() -> MakeGroup:
    """A group with these rewards, each trajectory with two sampled tokens."""

    def make(rewards: Sequence[float | None] = (0.0, 1.0), **fields: Any) -> TrajectoryGroup:
        return TrajectoryGroup(
            [
                Trajectory(
                    reward=reward,
                    histories=[
                        History(
                            token_ids=[1, 2, 3],
                            loss_mask=[False, True, True],
                            logprobs=[None, -0.1, -1 / 3],
                            policy_versions=[None, 0, 0],
                        )
                    ],
                )
                for reward in rewards
            ],
            **fields,
        )

    return make


@pytest.fixture
def write_adapter() -> Callable[[Path], None]:
    """Fills a checkpoint's folder."""

    def write(folder: Path) -> None:
        (folder / "adapter.safetensors").write_bytes(b"weights")
        (folder / "optimizer").mkdir()
        (folder / "optimizer" / "state.json").write_text("{}")

    return write
