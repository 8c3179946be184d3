"""Keys: made once, kept as hashes, refused when revoked."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from art_core.errors import ConfigError, LimitExceededError, RunDamagedError
from art_core.server.keys import KeyStore, Limits
from art_core.server.meter import Meter, current_key

WORST_NAMES = [
    "",
    ".",
    "..",
    "../shop",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "nul\0byte",
    "shоp",  # a Cyrillic o
    "ｓhop",  # a full-width s
    "shop\n",
    "~root",
    "x" * 129,
    "x" * 100_000,
]


def test_a_key_is_found_until_it_is_revoked(tmp_path: Path) -> None:
    store, other = KeyStore(tmp_path), KeyStore(tmp_path)
    record, key = store.create("shop", "ci")
    assert other.find(key) == record
    assert other.find(key[:-1]) is other.find(key + "x") is other.find("") is None
    store.revoke(record.id)
    assert other.find(key) is None
    assert [each.revoked_at is not None for each in other.all()] == [True]


def test_what_is_on_disk_lets_nobody_in(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    record, key = store.create("shop", "ci")
    content = store.path.read_text()
    assert key not in content
    assert key.rpartition("-")[2] not in content
    assert store.find(record.digest) is None
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", WORST_NAMES, ids=lambda name: repr(name)[:20])
def test_names_that_could_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    store = KeyStore(tmp_path)
    with pytest.raises(ConfigError, match="project is"):
        store.create(name, "ci")
    with pytest.raises(ConfigError, match="name is"):
        store.create("shop", name)
    assert store.all() == []


def test_two_keys_of_one_name(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    record, _ = store.create("shop", "ci")
    with pytest.raises(ConfigError, match="has a key called 'ci' already"):
        store.create("shop", "ci")
    store.revoke(record.id)
    store.create("shop", "ci")
    with pytest.raises(ConfigError, match="no key has the id"):
        store.revoke("nonsense")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    _, key = store.create("shop", "ci")
    store.path.write_text("{")
    with pytest.raises(RunDamagedError, match=r"keys\.json can't be read"):
        KeyStore(tmp_path).find(key)


def test_the_command_line(tmp_path: Path) -> None:
    def art(*words: str) -> str:
        code = "from art_core.cli.main import main; main()"
        command = [sys.executable, "-c", code, "keys", *words, "--root", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    key = art("create", "shop", "ci", "--rollouts", "3").strip()
    record = KeyStore(tmp_path).find(key)
    assert record is not None
    assert (record.project, record.limits) == ("shop", Limits(rollouts=3))
    (listed,) = json.loads(art("list", "--json"))
    assert (listed["id"], listed["revoked_at"]) == (record.id, None)
    assert "digest" not in listed
    art("revoke", record.id)
    assert KeyStore(tmp_path).find(key) is None


def test_a_rate_is_kept_to(tmp_path: Path) -> None:
    record, _ = KeyStore(tmp_path).create("shop", "ci", Limits(requests_per_minute=3))
    meter = Meter(tmp_path)
    waits = [meter.request(record) for _ in range(5)]
    assert waits[:3] == [0, 0, 0]
    assert all(15 < wait <= 20 for wait in waits[3:])


def test_tokens_are_counted_over_a_restart(tmp_path: Path) -> None:
    record, _ = KeyStore(tmp_path).create("shop", "ci", Limits(tokens_per_day=100))
    meter = Meter(tmp_path)
    current_key.set(record)
    meter.add_tokens(99)
    meter.check_tokens(record)
    meter.add_tokens(1)
    meter.save()
    again = Meter(tmp_path)
    again.load()
    with pytest.raises(LimitExceededError, match="used 100 tokens today, of 100"):
        again.check_tokens(record)


def test_a_full_disk_quota(tmp_path: Path) -> None:
    record, _ = KeyStore(tmp_path).create("shop", "ci", Limits(disk_gb=1e-6))
    (tmp_path / "shop" / "bot").mkdir(parents=True)
    (tmp_path / "shop" / "bot" / "file").write_bytes(b"x" * 2000)
    with pytest.raises(LimitExceededError, match="GB on disk, of 1e-06"):
        Meter(tmp_path).check_disk(record)
