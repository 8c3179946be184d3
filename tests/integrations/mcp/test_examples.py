"""The examples run: one step each, with the real base model."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import mcp_time


@pytest.mark.long
@pytest.mark.training
@pytest.mark.timeout(900)
async def test_the_time_example_trains(tmp_path: Path) -> None:
    report = await mcp_time.main(steps=1, held_out=4, root=str(tmp_path))
    assert report.steps == 1
    assert report.before is not None
    assert report.after is not None


def test_the_times_are_what_the_server_says() -> None:
    scenario = mcp_time.question("Asia/Tokyo", "16:30", "Asia/Seoul")
    assert mcp_time.clock(mcp_time.converted(scenario)["target"]) == "16:30"
