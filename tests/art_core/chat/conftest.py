# pyright: reportUnknownMemberType=false
"""A small byte-level tokenizer, made here, with any control tokens a template needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

SMOLLM2_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
    "Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_CORPUS = [
    "system user assistant tool You are a helpful assistant. Hello, what is the time in Paris?",
    '{"name": "get_time", "arguments": {"zone": "Europe/Paris", "n": 12}}',
    "<tool_call> </tool_call> <think> </think> <tools> function parameters description type",
    "im_start im_end tool_response the of and to in is that it was for on are as with his they",
]

MakeTokenizer = Callable[..., PreTrainedTokenizerBase]


def make_tokenizer(
    template: str,
    special: Sequence[str] = ("<|im_start|>", "<|im_end|>", "<|endoftext|>"),
    *,
    added: Sequence[str] = (),
    eos: str = "<|im_end|>",
) -> PreTrainedTokenizerBase:
    """A byte-level BPE tokenizer; ``added`` are added tokens that aren't special."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_CORPUS, trainer)
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in added])
    backend.add_special_tokens([AddedToken(text, special=True) for text in special])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos, chat_template=template)


@pytest.fixture(scope="session")
def smollm2_like() -> PreTrainedTokenizerBase:
    """SmolLM2's template and control tokens over a small vocabulary."""
    return make_tokenizer(SMOLLM2_TEMPLATE)
