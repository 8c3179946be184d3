# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""One copy of the weights in memory, under any number of module trees."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from art_core.errors import WeightsError
from art_core.weights import resolve
from art_core.weights.loading import load, pick_dtype


def test_trees_share_memory_and_nothing_else(tiny_model_folder: Path) -> None:
    weights = load(resolve(str(tiny_model_folder)), dtype="float32", device="cpu")
    first, second = weights.new_model(), weights.new_model()
    for (name, a), b in zip(first.named_parameters(), second.parameters(), strict=True):
        assert a.data_ptr() == b.data_ptr(), name
        assert a is not b
        assert not a.requires_grad
    assert not first.training
    embedding: Any = first.get_input_embeddings()
    head: Any = first.get_output_embeddings()
    assert head.weight is embedding.weight  # tied weights stay tied
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        get_peft_model(first, LoraConfig(r=2, target_modules="all-linear"))
    assert any("lora" in name for name, _ in first.named_parameters())
    assert not any("lora" in name for name, _ in second.named_parameters())
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(second(ids).logits, weights.new_model()(ids).logits)


def test_dtype_by_name_or_by_what_the_machine_is_good_at(tiny_model_folder: Path) -> None:
    files = resolve(str(tiny_model_folder))
    assert load(files, dtype="bfloat16", device="cpu").dtype == torch.bfloat16
    assert load(files, device="cpu").dtype == pick_dtype(torch.device("cpu"))


def test_a_folder_with_missing_weights_is_refused(tiny_model_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "more-layers"
    shutil.copytree(tiny_model_folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(WeightsError, match=r"layers\.2"):
        load(resolve(str(folder)), device="cpu")


@pytest.mark.parametrize("text", ["{", '{"model_type": "no-such-model"}'])
def test_a_config_nobody_understands_is_refused(
    tiny_model_folder: Path, tmp_path: Path, text: str
) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(tiny_model_folder, folder)
    (folder / "config.json").write_text(text)
    with pytest.raises(WeightsError, match="can't load"):
        load(resolve(str(folder)), device="cpu")
