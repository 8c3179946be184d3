# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Control tokens stay what they are: only templates write them, only their ids count."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from art_core.chat import chat_format_for
from art_core.chat.vocabulary import Vocabulary
from art_core.errors import ChatError
from tests.art_core.chat.templates import SMOLLM2_TEMPLATE, make_metaspace_tokenizer, make_tokenizer

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "[INST]")
TOKENIZER = make_tokenizer(
    SMOLLM2_TEMPLATE, SPECIAL, added=("<think>", "</think>", "<tool_call>", "<b>", "  ")
)
VOCABULARY = Vocabulary(TOKENIZER, SMOLLM2_TEMPLATE)
CONTROLS = set(VOCABULARY.ids.values())
HOSTILE = st.lists(
    st.sampled_from([*SPECIAL, "<think>", "<tool_call>", "<|im_<|im_end|>end|>", "<b>", "\n"])
    | st.text(max_size=8)
).map("".join)


def test_markup_is_no_control_token() -> None:
    assert set(VOCABULARY.ids) == {*SPECIAL, "<think>", "</think>", "<tool_call>"}
    assert VOCABULARY.encode("<b>") == TOKENIZER.encode("<b>", add_special_tokens=False)


@given(HOSTILE)
@settings(max_examples=300)
def test_plain_text_makes_no_control_token(text: str) -> None:
    ids = VOCABULARY.encode(text)
    assert CONTROLS.isdisjoint(ids)
    assert VOCABULARY.decode(ids) == text


@given(HOSTILE)
@settings(max_examples=300)
def test_shielded_text_comes_out_of_a_template_as_it_was(text: str) -> None:
    marked = VOCABULARY.mark(f"<|im_start|>{VOCABULARY.shield(text)}<|im_end|>")
    ids = VOCABULARY.encode(marked)
    assert [id_ for id_ in ids if id_ in CONTROLS] == [
        VOCABULARY.ids["<|im_start|>"],
        VOCABULARY.ids["<|im_end|>"],
    ]
    assert VOCABULARY.unmark(marked) == f"<|im_start|>{text}<|im_end|>"


@given(st.text())
@settings(max_examples=300)
def test_harmless_text_is_tokenized_as_transformers_does(text: str) -> None:
    prompt = f"<|im_start|>user\n{text}<|im_end|>\n<think>"
    expected = TOKENIZER.encode(prompt, add_special_tokens=False)
    assert VOCABULARY.encode(VOCABULARY.mark(prompt)) == expected


@given(st.lists(st.integers(0, len(TOKENIZER) + 5), max_size=30))
@settings(max_examples=300)
def test_any_ids_decode_as_transformers_decodes_them(ids: list[int]) -> None:
    known = [id_ for id_ in ids if id_ < len(TOKENIZER)]
    expected = TOKENIZER.decode(known, clean_up_tokenization_spaces=False)
    decoder = VOCABULARY.decoder()
    streamed = "".join(decoder.feed([id_]) for id_ in ids) + decoder.finish()
    assert VOCABULARY.unmark(streamed) == expected


METASPACE = make_metaspace_tokenizer(SMOLLM2_TEMPLATE)
CHAT = chat_format_for(METASPACE)
# Text of any script: what isn't in the vocabulary becomes bytes.
WORDS = st.text(st.characters(exclude_characters="▁", exclude_categories=["Cs"]), min_size=1)


@given(WORDS)
@settings(max_examples=200)
def test_sentencepiece_style_prompts_are_tokenized_as_transformers_does(text: str) -> None:
    messages: Any = [{"role": "user", "content": text}]
    expected = METASPACE.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    assert CHAT.render(messages) == expected


@given(WORDS, WORDS)
@settings(max_examples=200)
def test_sentencepiece_style_turns_continue_in_place(said: str, more: str) -> None:
    """Blanks behind ``<|im_end|>`` are swallowed, and none is put in front of what is new."""
    first: Any = {"role": "user", "content": "Hello"}
    second: Any = {"role": "user", "content": more}
    prompt = CHAT.render([first])
    whole = CHAT.render([first, {"role": "assistant", "content": said}])
    sampled = whole[len(prompt) : whole.index(CHAT.stop_token_ids[0], len(prompt)) + 1]
    message = CHAT.parse(sampled).message
    bridged = CHAT.bridge([*prompt, *sampled], [first, message], [second], sampled=len(sampled))
    assert bridged == CHAT.render([first, {"role": "assistant", "content": said}, second])


def test_another_kind_of_tokenizer_is_refused() -> None:
    class Slow:
        chat_template = SMOLLM2_TEMPLATE
        name_or_path = ""

    slow: Any = Slow()
    with pytest.raises(ChatError, match="Slow isn't a tokenizer of the tokenizers library"):
        chat_format_for(slow)


def test_a_tokenizer_without_a_template_is_refused(smollm2_like: PreTrainedTokenizerBase) -> None:
    bare = make_tokenizer(None, SPECIAL)
    with pytest.raises(ChatError, match="no chat template"):
        chat_format_for(bare)
    assert chat_format_for(bare, template=SMOLLM2_TEMPLATE).stop_token_ids
