"""Chat formats to test with, over small tokenizers made here."""

from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerBase

from art_core.chat import TemplateFormat, chat_format_for
from tests.art_core.chat.templates import (
    SMOLLM2_TEMPLATE,
    Template,
    make_metaspace_tokenizer,
    make_tokenizer,
    trl_templates,
)


@pytest.fixture(scope="session")
def smollm2_like() -> PreTrainedTokenizerBase:
    """SmolLM2's template and control tokens over a small vocabulary."""
    return make_tokenizer(SMOLLM2_TEMPLATE, ("<|im_start|>", "<|im_end|>", "<|endoftext|>"))


@pytest.fixture(scope="session")
def smollm2(smollm2_like: PreTrainedTokenizerBase) -> TemplateFormat:
    return chat_format_for(smollm2_like)


@pytest.fixture(scope="session")
def metaspace_like() -> PreTrainedTokenizerBase:
    """A SentencePiece-style tokenizer, whose ``</s>`` swallows the blanks behind it."""
    return make_metaspace_tokenizer(SMOLLM2_TEMPLATE)


@pytest.fixture(scope="session")
def templates() -> dict[str, Template]:
    """TRL's templates by name; their tokenizers and formats are made when asked for."""
    return {template.name: template for template in trl_templates()}
