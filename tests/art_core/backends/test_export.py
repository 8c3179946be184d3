# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Checkpoints as other programs take them, and where they may be sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import torch
from moto.server import ThreadedMotoServer
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

import art_core as art
from art_core.backends.export import export_adapter, export_merged, find_checkpoint
from art_core.backends.push import push
from art_core.errors import ConfigError, RunDamagedError, RunError, StorageError
from art_core.runs import RunReader
from tests.art_core.server.agents import new_group


@pytest.fixture
async def run(tmp_path: Path, tiny_model_folder: Path) -> RunReader:
    async with art.LocalBackend(tmp_path / "runs", dtype="float32") as backend:
        model = art.TrainableModel(name="bot", project="tests", base_model=str(tiny_model_folder))
        await model.register(backend)
        for step in range(2):
            group = await new_group(model, f"town {step}")
            await backend.train(model, [group], art.StepConfig(learning_rate=1e-2))
            if step == 0:
                await backend.log(model, [await new_group(model, "Bern")], split="val")
    return RunReader(tmp_path / "runs" / "tests" / "bot")


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT's own
def test_a_merged_model_computes_what_base_and_adapter_do(
    run: RunReader, tiny_model_folder: Path, tmp_path: Path
) -> None:
    checkpoint = find_checkpoint(run, None, best=False)
    export_adapter(checkpoint, tmp_path / "adapter")
    export_merged(run, checkpoint, tmp_path / "merged")
    base = AutoModelForCausalLM.from_pretrained(tiny_model_folder, dtype=torch.float32)
    adapted: Any = PeftModel.from_pretrained(base, str(tmp_path / "adapter"))
    merged: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32)
    tokens = torch.arange(5, 25)[None]
    with torch.no_grad():
        theirs, ours = adapted(tokens).logits, merged(tokens).logits
        with adapted.disable_adapter():
            untrained = adapted(tokens).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert (theirs - untrained).abs().max() > 1e-3
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path / "merged")
    assert tokenizer.chat_template
    with pytest.raises(ConfigError, match="exists"):
        export_adapter(checkpoint, tmp_path / "adapter")
    assert not list(tmp_path.glob(".*"))


def test_which_checkpoint(run: RunReader) -> None:
    assert find_checkpoint(run, None, best=False).step == 2
    assert find_checkpoint(run, 1, best=False).step == 1
    assert find_checkpoint(run, None, best=True).step == 1
    with pytest.raises(RunError, match="no checkpoint of step 7"):
        find_checkpoint(run, 7, best=False)
    (run.checkpoints.get(2).path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(RunDamagedError, match="adapter_model"):
        find_checkpoint(run, None, best=False)


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tester")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tester")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("NO_PROXY", "*")
    yield boto3.client("s3")
    server.stop()


def test_a_folder_is_pushed_to_an_s3_store(s3: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    contents = {"config.json": b"{}", "model.safetensors": b"x" * 9_000_000, "sub/a.txt": b"a"}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    s3.create_bucket(Bucket="models")
    sent: list[str] = []
    assert push(folder, "s3://models/shop/bot", sent.append) == "s3://models/shop/bot"
    assert sent == ["model.safetensors", "sub/a.txt", "config.json"]
    for name, content in contents.items():
        stored = s3.get_object(Bucket="models", Key=f"shop/bot/{name}")
        assert stored["Body"].read() == content
    with pytest.raises(StorageError, match="s3://nowhere/x can't be written"):
        push(folder, "s3://nowhere/x")


def test_what_can_not_be_pushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="has no files"):
        push(tmp_path, "s3://models/bot")
    (tmp_path / "config.json").write_text("{}")
    for target in ("", "models/bot", "hf://alone", "hf://a/b/c", "s3://", "file:///etc"):
        with pytest.raises(ConfigError, match="target is"):
            push(tmp_path, target)
