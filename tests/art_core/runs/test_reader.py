from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from art_core.errors import RunDamagedError, RunError
from art_core.runs import RunDirectory, list_runs, open_run_readonly
from art_core.trajectories import TrajectoryGroup

MakeRun = Callable[..., RunDirectory]


def test_runs_are_listed_and_damaged_ones_told_apart(make_run: MakeRun, tmp_path: Path) -> None:
    make_run()
    make_run(model="archived").close()
    make_run(model="archived", fresh=True)
    damaged = make_run(project="other")
    (damaged.path / "run.json").write_text("{")
    listing = list_runs(tmp_path / ".art")
    assert [(r.identity.project, r.identity.model) for r in listing.runs] == [
        ("shop", "archived"),
        ("shop", "bot"),
    ]
    assert ["other/bot" in str(error) for error in listing.damaged] == [True]
    assert list_runs(tmp_path / "nowhere").runs == []


@pytest.mark.parametrize("name", ["bot", "shop/bot", "{id}", "{id6}", "{path}"])
def test_a_run_is_found_by_what_users_call_it(make_run: MakeRun, tmp_path: Path, name: str) -> None:
    run = make_run()
    make_run(model="other")
    run_id = run.identity.run_id
    asked = name.format(id=run_id, id6=run_id[:6], path=run.path)
    assert open_run_readonly(asked, tmp_path / ".art").identity == run.identity


@pytest.mark.parametrize("name", ["bot", "shop/bot"])
def test_a_damaged_run_is_said_to_be_damaged(make_run: MakeRun, tmp_path: Path, name: str) -> None:
    run = make_run()
    (run.path / "run.json").write_text("{")
    with pytest.raises(RunDamagedError, match=r"bot/run\.json"):
        open_run_readonly(name, tmp_path / ".art")


def test_a_name_that_is_not_clear_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    root = tmp_path / ".art"
    with pytest.raises(RunError, match=r"no run called 'bot' under .*Runs: none\."):
        open_run_readonly("bot", root)
    make_run()
    make_run(project="other")
    with pytest.raises(RunError, match=r"2 runs are called 'bot'.*other/bot, shop/bot"):
        open_run_readonly("bot", root)


def test_reading_changes_nothing_and_sees_only_what_is_whole(
    make_run: MakeRun,
    make_group: Callable[..., TrajectoryGroup],
    write_adapter: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    run = make_run()
    run.commit(1, write_adapter, groups=[make_group()])
    run.journal.add(2, make_group())
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"torn')
    (run.path / "checkpoints" / ".staging-00002-x").mkdir()
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    reader = open_run_readonly("bot", tmp_path / ".art")
    assert reader.step == 1
    assert [row.step for row in reader.metrics.read()] == [1]
    assert len(reader.journal.read(2)) == 1
    assert reader.active
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before
