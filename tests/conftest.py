# pyright: reportUnknownMemberType=false
"""Fixtures that several packages' tests share."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples each time: a failure is then one of the change at hand. `make test-full`
# draws others each time.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


def pytest_configure() -> None:
    # A job in the background of a script inherits an ignored Ctrl-C, and so would the
    # processes that the tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """The real embedded base model, fetched once per machine."""
    from art_core.weights import resolve

    return resolve("smollm2-135m").path


@pytest.fixture(scope="session")
def tiny_model_folder(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Llama with SmolLM2's tokenizer and template: quick, and nothing
    about the path of a token is different from the real model's."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for pattern in ("tokenizer*", "special_tokens*", "chat_template*", "vocab*", "merges*"):
        for file in smollm2_folder.glob(pattern):
            shutil.copy(file, folder / file.name)
    return folder
