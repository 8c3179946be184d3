"""`art sft`, as a process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.art_core.cli.conftest import RunArt


def line(question: str, *answers: str) -> dict[str, Any]:
    said = [{"role": "assistant", "content": answer} for answer in answers]
    return {"messages": [{"role": "user", "content": question}, *said]}


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    path = tmp_path / "train.jsonl"
    lines = [line(f"Say {n}", f"It is {n}") for n in range(6)]
    path.write_text("\n".join(map(json.dumps, [*lines, line("only a question"), lines[0]])) + "\n")
    return path


def test_bad_lines_are_named_and_nothing_is_trained(
    art: RunArt, examples: Path, tmp_path: Path, tiny_model_folder: Path
) -> None:
    done = art("sft", str(examples), "--base-model", str(tiny_model_folder))
    assert done.returncode == 1
    assert "error:" in done.stderr
    assert "train.jsonl:7 is unanswered" in done.stderr
    assert not (tmp_path / ".art").exists()
    checked = art(
        "sft", str(examples), "--base-model", str(tiny_model_folder), "--skip-bad", "--check"
    )
    assert checked.returncode == 0, checked.stderr
    assert "training: 7 examples" in checked.stderr
    assert "train.jsonl:8 is train.jsonl:1" in checked.stderr
    assert not (tmp_path / ".art").exists()


def test_it_learns_and_says_where_the_result_is(
    art: RunArt, examples: Path, tmp_path: Path, tiny_model_folder: Path
) -> None:
    held_out = tmp_path / "held-out.jsonl"
    held_out.write_text(json.dumps(line("Say 50", "It is 50")) + "\n")
    done = art(
        "sft", str(examples), "--skip-bad", "--base-model", str(tiny_model_folder), "--epochs", "2",
        "--batch-size", "4", "--learning-rate", "0.01", "--validation", str(held_out), "--json",
        "--name", "bot", "--project", "shop",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["step"] == 1
    assert report["sft/updates"] == 4
    assert report["sft/validation_loss"] < report["sft/validation_loss_before"]
    folder = tmp_path / report["checkpoint"]
    assert folder == tmp_path / ".art" / "shop" / "bot" / "checkpoints" / "00001"
    assert (folder / "adapter_model.safetensors").is_file()
