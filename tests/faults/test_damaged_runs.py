"""Run directories are outside bytes: damaged or made up, they are refused and never run."""

from __future__ import annotations

import ast
import json
import os
import pickle
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import art_core
from art_core.cli.targets import read_scenarios
from art_core.errors import ArtError
from art_core.runs import RunDirectory, RunReader, list_runs, verify_run
from art_core.runs.lock import read_owner
from art_core.runs.records import RecordStore

WHOLE = Path(__file__).with_name("format_1")
FILES = sorted(p.relative_to(WHOLE) for p in WHOLE.rglob("*") if p.is_file())
PACKAGES = [Path(art_core.__file__).parents[1] / p for p in ("art_core", "ruler", "integrations")]

fuzzed = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


def mutated(content: bytes, data: st.DataObject) -> bytes:
    """A file's content with something cut, put in, or one JSON value replaced."""
    kind = data.draw(st.sampled_from(["cut", "put in", "flip", "value", "key"]))
    if kind in ("value", "key"):
        with suppress(ValueError, UnicodeDecodeError):
            lines = content.decode().splitlines() if b"}\n{" in content else [content.decode()]
            number = data.draw(st.integers(0, len(lines) - 1))
            record: Any = json.loads(lines[number])
            key = data.draw(st.sampled_from(sorted(record)))
            if kind == "value":
                record[key] = data.draw(json_values)
            else:
                del record[key]
            lines[number] = json.dumps(record)
            return "\n".join(lines).encode() + b"\n"
    start = data.draw(st.integers(0, len(content)))
    some = data.draw(st.binary(min_size=1, max_size=40))
    length = data.draw(st.integers(1, 200)) if kind == "cut" else len(some) * (kind == "flip")
    return content[:start] + (b"" if kind == "cut" else some) + content[start + length :]


def read_everything(root: Path) -> None:
    """All that a command or a restart reads; ArtErrors are the right answer to damage."""
    list_runs(root)
    path = root / "shop" / "bot"
    with suppress(ArtError):
        run = RunReader(path)
        list(verify_run(run))
        for read in (run.metrics.read, run.checkpoints.all, lambda: run.active):
            with suppress(ArtError):
                read()
    with suppress(ArtError):
        store = RecordStore(path / "records.sqlite")
        try:
            with suppress(ArtError):
                list(store)
            with suppress(ArtError):
                store.by_ids(["c0"])
        finally:
            store.close()
    with suppress(ArtError):
        RunDirectory.open(root, project="shop", model="bot", base_model="tiny").close()


@fuzzed
@given(data=st.data())
def test_any_damage_is_an_error_of_ours_or_none(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("damaged")
    path = root / "shop" / "bot"
    shutil.copytree(WHOLE, path)
    file = path / data.draw(st.sampled_from(FILES))
    file.write_bytes(mutated(file.read_bytes(), data))
    read_everything(root)
    shutil.rmtree(root)


@fuzzed
@given(
    column=st.sampled_from(["call", "prompt", "completion", "logprobs", "trainable", "status"]),
    value=st.binary(max_size=9) | st.text(max_size=9) | st.none() | st.integers(-9, 9),
)
def test_any_record_is_an_error_of_ours_or_none(
    column: str, value: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("records")
    shutil.copytree(WHOLE, root / "shop" / "bot")
    with sqlite3.connect(root / "shop/bot/records.sqlite") as connection, suppress(sqlite3.Error):
        connection.execute(f"UPDATE completions SET {column} = ?", (value,))
    connection.close()
    read_everything(root)
    shutil.rmtree(root)


@fuzzed
@given(content=st.binary(max_size=60) | json_values.map(lambda v: json.dumps(v).encode()))
def test_small_files_of_any_content(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "owner.json").write_bytes(content)
    read_owner(tmp_path)
    (tmp_path / "scenarios.jsonl").write_bytes(content)
    with suppress(ArtError):
        read_scenarios(tmp_path / "scenarios.jsonl")


class Bomb:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self._path),)


@pytest.mark.parametrize(
    "name",
    ["adapter_model.safetensors", "adapter_model.bin", "optimizer.safetensors", "trainer.json"],
)
def test_a_checkpoint_cannot_run_code(tmp_path: Path, name: str) -> None:
    from art_core.engines.embedded.lora import read_adapter
    from art_core.grpo import checkpoint

    proof = tmp_path / "it-ran"
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    state = {"step": 1, "updates": 1, "seed": 0, "tokens_that_fit": 256}
    (folder / "trainer.json").write_text(json.dumps(state))
    (folder / name).write_bytes(pickle.dumps(Bomb(proof)))
    with pytest.raises(ArtError):
        read_adapter(folder, {})
    with pytest.raises(ArtError):
        checkpoint.load(folder, None)  # type: ignore[arg-type]  # it fails before
    assert not proof.exists()


def test_nothing_in_the_package_unpickles() -> None:
    """PEFT and transformers are asked for safetensors; ours never touches pickle."""
    forbidden = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
    files = [path for package in PACKAGES for path in package.rglob("*.py")]
    assert len(files) > 100
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not forbidden & {alias.name.split(".")[0] for alias in node.names}, path
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in forbidden, path
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) != ("torch", "load"), path
