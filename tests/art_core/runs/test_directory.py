from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from art_core.config import LoraConfig, TrainConfig
from art_core.errors import (
    ConfigError,
    RunDamagedError,
    RunMismatchError,
    StorageError,
    TrajectoryError,
)
from art_core.runs import Retention, RunDirectory
from art_core.trajectories import TrajectoryGroup

Write = Callable[[Path], None]
MakeRun = Callable[..., RunDirectory]
MakeGroup = Callable[..., TrajectoryGroup]


def test_a_run_goes_on_where_it_was(
    make_run: MakeRun, make_group: MakeGroup, write_adapter: Write
) -> None:
    run = make_run()
    assert run.step == 0
    group = make_group()
    run.commit(1, write_adapter, groups=[group], metrics={"loss": 0.5})
    run.close()

    again = make_run()
    assert again.step == 1
    assert again.identity == run.identity
    assert again.trajectories.read("train", 1) == [group]
    (row,) = again.metrics.read()
    assert row.metrics["loss"] == 0.5
    assert row.metrics["reward"] == 0.5


def test_a_group_is_trained_on_once(
    make_run: MakeRun, make_group: MakeGroup, write_adapter: Write
) -> None:
    run = make_run()
    group = make_group(id="g")
    with pytest.raises(TrajectoryError, match="group g is in the batch twice"):
        run.commit(1, write_adapter, groups=[group, group])
    run.commit(1, write_adapter, groups=[group])
    for step in (2, 3):
        run.commit(step, write_adapter)
    run.prune(Retention(last=1))
    run.close()
    again = make_run()
    with pytest.raises(TrajectoryError, match="group g was trained on in step 1"):
        again.commit(4, write_adapter, groups=[group])
    assert again.step == 3


@pytest.mark.parametrize("lost", ["metrics.jsonl", "steps.jsonl"])
def test_what_was_not_written_after_the_checkpoint_is_written_from_its_manifest(
    make_run: MakeRun, make_group: MakeGroup, write_adapter: Write, lost: str
) -> None:
    """As if the process had died right after the rename."""
    run = make_run()
    group = make_group(id="g")
    run.commit(1, write_adapter, groups=[group], metrics={"loss": 0.5, "kl": math.nan})
    run.close()
    (run.path / "steps.jsonl").unlink()
    (run.path / lost).unlink(missing_ok=True)
    again = make_run()
    (row,) = again.metrics.read()
    assert row.metrics["loss"] == 0.5
    assert math.isnan(row.metrics["kl"])
    with pytest.raises(TrajectoryError, match="trained on in step 1"):
        again.check_untrained([group])


def test_after_its_latest_checkpoints_were_removed_it_goes_on_before_them(
    make_run: MakeRun, make_group: MakeGroup, write_adapter: Write
) -> None:
    run = make_run()
    groups = [make_group(id=f"g{step}") for step in (1, 2, 3)]
    for step, group in enumerate(groups, start=1):
        run.commit(step, write_adapter, groups=[group])
        run.log_groups(step, "val", [make_group()])
    run.close()
    for step in (2, 3):
        path = run.checkpoints.get(step).path
        path.rename(run.path / f"removed-{step}")

    again = make_run()
    assert again.step == 1
    assert [(row.step, row.split) for row in again.metrics.read()] == [(1, "train"), (1, "val")]
    again.commit(2, write_adapter, groups=[groups[1]])
    with pytest.raises(TrajectoryError, match="g1 was trained on in step 1"):
        again.check_untrained([groups[0]])


def test_the_journal_keeps_the_open_step_only(
    make_run: MakeRun, make_group: MakeGroup, write_adapter: Write
) -> None:
    run = make_run()
    first, second = make_group(id="a"), make_group(rewards=(math.pi, 1 / 3), id="b")
    run.journal.add(1, first)
    run.journal.add(1, second)
    run.close()
    again = make_run()
    assert again.journal.read(1) == {"a": first, "b": second}
    again.commit(1, write_adapter, groups=[first, second])
    assert again.journal.read(1) == {}
    again.journal.add(2, make_group())
    again.close()
    with (again.path / "journal" / "00002.jsonl").open("ab") as file:
        file.write(b'{"torn')
    (again.path / "journal" / "00001.jsonl").write_bytes(b"left behind")
    last = make_run()
    assert len(last.journal.read(2)) == 1
    assert [p.name for p in (last.path / "journal").iterdir()] == ["00002.jsonl"]


def test_groups_logged_at_one_step_add_up(make_run: MakeRun, make_group: MakeGroup) -> None:
    run = make_run()
    run.log_groups(0, "val", [make_group((1.0,), id="a")])
    metrics = run.log_groups(0, "val", [make_group((0.0,), id="b")])
    assert metrics["reward"] == 0.5
    run.log_groups(0, "val", [make_group((0.5,), id="b")])
    assert [g.id for g in run.trajectories.read("val", 0)] == ["a", "b"]
    (row,) = run.metrics.read()
    assert row.metrics["reward"] == 0.75
    assert run.trajectories.splits() == ["val"]
    assert run.trajectories.steps("val") == [0]


def test_a_split_is_a_name(make_run: MakeRun, make_group: MakeGroup) -> None:
    with pytest.raises(ConfigError, match=r"split is '\.\./\.\./x'"):
        make_run().log_groups(0, "../../x", [make_group()])


def test_another_base_model_is_refused(make_run: MakeRun) -> None:
    make_run().close()
    with pytest.raises(RunMismatchError, match="base_model = tiny, and now base_model = large"):
        make_run(base_model="large", base_digest="d2")
    with pytest.raises(RunMismatchError, match="base_digest = d1, and now base_digest = d2"):
        make_run(base_digest="d2")
    with pytest.raises(RunMismatchError, match=r"lora = None, and now lora = rank=4"):
        make_run(lora=LoraConfig(rank=4))
    make_run(base_model="/another/spelling").close()


def test_other_settings_are_refused_and_some_may_change(make_run: MakeRun) -> None:
    run = make_run()
    config = TrainConfig(seed=1, learning_rate=1e-4)
    run.bind(config)
    identity = run.identity
    assert identity.config_hash is not None
    run.close()
    again = make_run()
    again.bind(config.model_copy(update={"steps": 99, "concurrency": 3}))
    assert again.identity == identity
    with pytest.raises(
        RunMismatchError, match=r"learning_rate \(0.0001 before, 0.0002 now\), seed \(1 before"
    ):
        again.bind(TrainConfig(seed=2, learning_rate=2e-4))


def test_a_setting_that_a_newer_version_added_has_its_default(make_run: MakeRun) -> None:
    run = make_run()
    run.bind(TrainConfig())
    run.close()
    path = run.path / "run.json"
    content = json.loads(path.read_text())
    del content["config"]["extra_groups"]
    path.write_text(json.dumps(content))
    again = make_run()
    again.bind(TrainConfig())
    with pytest.raises(RunMismatchError, match=r"extra_groups \(0 before, 2 now\)"):
        again.bind(TrainConfig(extra_groups=2))


def test_a_fresh_run_archives_the_old_one(
    make_run: MakeRun, make_group: MakeGroup, write_adapter: Write, tmp_path: Path
) -> None:
    old = make_run()
    old.commit(1, write_adapter, groups=[make_group()])
    old.close()
    fresh = make_run(base_model="large", base_digest="d2", fresh=True)
    assert fresh.step == 0
    assert fresh.identity.run_id != old.identity.run_id
    (archived,) = (tmp_path / ".art" / ".archive" / "shop").iterdir()
    assert (archived / "checkpoints" / "00001" / "adapter.safetensors").exists()
    assert json.loads((archived / "run.json").read_text())["run_id"] == old.identity.run_id


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format_version": "x"}'])
def test_a_damaged_run_file_is_named(make_run: MakeRun, content: str) -> None:
    run = make_run()
    run.close()
    (run.path / "run.json").write_text(content)
    with pytest.raises(RunDamagedError, match=r"run\.json can't be read"):
        make_run()


def test_a_newer_format_is_refused(make_run: MakeRun) -> None:
    run = make_run()
    run.close()
    content = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**content, "format_version": 3, "new": 1}))
    with pytest.raises(RunDamagedError, match="format 3; this version reads up to 2"):
        make_run()


def test_someone_elses_folder_is_left_alone(make_run: MakeRun, tmp_path: Path) -> None:
    folder = tmp_path / ".art" / "shop" / "bot"
    folder.mkdir(parents=True)
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(RunDamagedError, match="has files in it but no run"):
        make_run()
    assert [p.name for p in folder.iterdir()] == ["thesis.txt"]


def test_a_root_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / ".art").write_text("in the way")
    with pytest.raises(StorageError, match=r"\.art"):
        RunDirectory.open(tmp_path / ".art", project="shop", model="bot")


def test_a_disk_that_cannot_be_written_to_is_named() -> None:
    with pytest.raises(StorageError, match="can't create /proc/art/shop: "):
        RunDirectory.open(Path("/proc/art"), project="shop", model="bot")


def test_what_killed_writers_left_is_removed(make_run: MakeRun) -> None:
    run = make_run()
    run.close()
    leftovers = [
        run.path / ".run.json.123.tmp",
        run.path / "trajectories" / "train" / ".00001.jsonl.123.tmp",
        run.path / "checkpoints" / ".staging-00001-abcd" / "half",
        run.path / "checkpoints" / ".removing-00000-abcd" / "half",
    ]
    for path in leftovers:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    make_run()
    assert [path for path in leftovers if path.exists()] == []


def test_retention_keeps_the_latest_each_nth_and_the_best(
    make_run: MakeRun, make_group: MakeGroup, write_adapter: Write
) -> None:
    run = make_run()
    for step, reward in enumerate([0.0, 0.9, 0.1, 0.2, 0.3, 0.4, 0.5]):
        run.commit(step, write_adapter)
        run.log_groups(step, "val", [make_group((reward,))])
    run.prune(Retention(last=2, every=4, best="val/reward"))
    assert [checkpoint.step for checkpoint in run.checkpoints.all()] == [0, 1, 4, 5, 6]
    run.prune(Retention(last=1, best="val/no-such-metric"))
    assert [checkpoint.step for checkpoint in run.checkpoints.all()] == [6]


def test_retention_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="keeps less than one"):
        Retention(last=0)
    with pytest.raises(ConfigError, match="best is 'reward'"):
        Retention(best="reward")


def test_a_full_disk_at_a_commit_leaves_the_run_as_it_was(
    make_run: MakeRun, make_group: MakeGroup, write_adapter: Write
) -> None:
    run = make_run()
    run.commit(1, write_adapter, groups=[make_group()])

    def full(folder: Path) -> None:
        write_adapter(folder)
        with Path("/dev/full").open("wb", buffering=0) as file:
            file.write(b"x")

    with pytest.raises(StorageError, match=r"00002: No space left on device.*Free some space"):
        run.commit(2, full, groups=[make_group()])
    run.close()
    again = make_run()
    assert again.step == 1
    assert [row.step for row in again.metrics.read()] == [1]
