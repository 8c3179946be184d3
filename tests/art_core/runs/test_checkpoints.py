from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from art_core.errors import RunDamagedError, RunError, StorageError
from art_core.runs.checkpoints import CheckpointStore

Write = Callable[[Path], None]


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", "run")


def test_a_checkpoint_has_all_that_was_written_and_what_it_was_made_of(
    store: CheckpointStore, write_adapter: Write
) -> None:
    made = store.publish(
        3,
        write_adapter,
        group_ids=["g1", "g2"],
        metrics={"loss": 0.5, "kl": float("nan")},
        config_hash="abc",
    )
    (found,) = store.all()
    assert found == made == store.latest() == store.get(3)
    assert found.path.name == "00003"
    assert (found.path / "adapter.safetensors").read_bytes() == b"weights"
    assert found.manifest.group_ids == ["g1", "g2"]
    assert found.manifest.metrics == {"kl": None, "loss": 0.5}
    assert found.manifest.config_hash == "abc"
    assert set(found.manifest.files) == {"adapter.safetensors", "optimizer/state.json"}
    found.verify()


def test_a_failed_write_leaves_nothing(store: CheckpointStore) -> None:
    def write(folder: Path) -> None:
        (folder / "a").write_bytes(b"a")
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="00001: No space left on device"):
        store.publish(1, write)
    assert store.latest() is None
    assert list(store.path.iterdir()) == []


def test_a_rename_that_fails_leaves_nothing(
    store: CheckpointStore, write_adapter: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As network file systems do it."""

    def fails(self: Path, target: Path) -> Path:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(StorageError, match=r"can't write .*00001: Stale file handle"):
        store.publish(1, write_adapter)
    assert list(store.path.iterdir()) == []


def test_a_step_is_published_once(store: CheckpointStore, write_adapter: Write) -> None:
    store.publish(1, write_adapter)
    with pytest.raises(RunError, match="step 1 already has a checkpoint"):
        store.publish(1, write_adapter)


def test_a_step_without_checkpoint_names_those_that_there_are(
    store: CheckpointStore, write_adapter: Write
) -> None:
    store.publish(2, write_adapter)
    with pytest.raises(RunError, match=r"no checkpoint of step 7.*There are: 2\."):
        store.get(7)


def change(folder: Path) -> None:
    (folder / "adapter.safetensors").write_bytes(b"weightz")


def cut(folder: Path) -> None:
    (folder / "adapter.safetensors").write_bytes(b"")


def remove(folder: Path) -> None:
    (folder / "optimizer" / "state.json").unlink()


def add(folder: Path) -> None:
    (folder / "extra.bin").write_bytes(b"x")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (change, r"adapter\.safetensors has"),
        (cut, "has 0 bytes"),
        (remove, r"state\.json is missing"),
        (add, r"extra\.bin isn't in its manifest"),
    ],
)
def test_damage_is_found_and_named(
    store: CheckpointStore, write_adapter: Write, damage: Write, reason: str
) -> None:
    checkpoint = store.publish(1, write_adapter)
    damage(checkpoint.path)
    with pytest.raises(RunDamagedError, match=reason):
        checkpoint.verify()


def test_a_symbolic_link_is_not_followed(
    store: CheckpointStore, write_adapter: Write, tmp_path: Path
) -> None:
    checkpoint = store.publish(1, write_adapter)
    secret = tmp_path / "secret"
    secret.write_bytes(b"weights")
    (checkpoint.path / "adapter.safetensors").unlink()
    (checkpoint.path / "adapter.safetensors").symlink_to(secret)
    with pytest.raises(StorageError, match="symbolic link"):
        checkpoint.verify()


@pytest.mark.parametrize("name", ["../../outside", "/etc/passwd", "a\\..\\b"])
def test_a_manifest_that_leads_outside_is_refused(
    store: CheckpointStore, write_adapter: Write, name: str
) -> None:
    checkpoint = store.publish(1, write_adapter)
    path = checkpoint.path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"][name] = {"size": 1, "sha256": "0"}
    path.write_text(json.dumps(manifest))
    with pytest.raises(RunDamagedError, match="its manifest names the file"):
        store.all()


@pytest.mark.parametrize("content", [None, "", "{", '{"step": 1}'])
def test_a_damaged_manifest_is_named(
    store: CheckpointStore, write_adapter: Write, content: str | None
) -> None:
    path = store.publish(1, write_adapter).path / "manifest.json"
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises(RunDamagedError, match=r"checkpoint .*00001 is damaged"):
        store.latest()


def test_a_checkpoint_that_was_renamed_is_not_taken_for_another_step(
    store: CheckpointStore, write_adapter: Write
) -> None:
    path = store.publish(1, write_adapter).path
    path.rename(path.with_name("00009"))
    with pytest.raises(RunDamagedError, match="is of step 1"):
        store.latest()


def test_only_what_is_kept_stays(store: CheckpointStore, write_adapter: Write) -> None:
    for step in range(6):
        store.publish(step, write_adapter)
    store.keep({0, 3})
    assert [checkpoint.step for checkpoint in store.all()] == [0, 3, 5]


KILL = """
    import os, signal, sys
    from pathlib import Path
    from art_core.runs import checkpoints

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    where = sys.argv[2]
    store = checkpoints.CheckpointStore(Path(sys.argv[1]), "run")

    def write(folder):
        (folder / "weights").write_bytes(b"x" * 100_000)
        if where == "writing":
            die()

    class DyingPath(type(Path())):
        def rename(self, target):
            if where == "after rename":
                Path(self).rename(target)
            die()

    if where == "before manifest":
        checkpoints.write_whole = die
    if where in ("before rename", "after rename"):
        store.path = DyingPath(store.path)
    store.publish(1, write)
"""


@pytest.mark.parametrize(
    ("where", "published"),
    [
        ("writing", False),
        ("before manifest", False),
        ("before rename", False),
        ("after rename", True),
    ],
)
def test_killed_while_publishing_a_checkpoint_is_whole_or_absent(
    store: CheckpointStore, where: str, published: bool
) -> None:
    store.path.mkdir()
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILL), str(store.path), where],
        check=False,
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL
    latest = store.latest()
    assert (latest is not None) is published
    if latest is not None:
        latest.verify()
    store.clean()
    assert [p.name for p in store.path.iterdir()] == (["00001"] if published else [])
