# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
"""Grammars of answers that must be JSON, or must call a tool."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llguidance import LLMatcher
from llguidance.hf import from_tokenizer

from art_core.chat import TemplateFormat, chat_format_for
from art_core.errors import ChatError
from tests.art_core.chat.corpus import LOOK_UP, tool
from tests.art_core.chat.templates import SMOLLM2_TEMPLATE, Template, make_tokenizer
from tests.art_core.chat.test_parse import sampled

TOOLS: list[Any] = [
    *LOOK_UP,
    tool("get-time", zone={"type": "string"}, hours={"type": "integer"}),
]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def accepts(chat: TemplateFormat, tokenizer: Any, grammar: str, text: str) -> bool:
    """Whether the grammar allows an answer, up to its end of turn."""
    matcher = LLMatcher(from_tokenizer(tokenizer), LLMatcher.grammar_from_lark(grammar))
    assert not matcher.is_error(), matcher.get_error()
    ids = sampled(chat, text)
    return (
        matcher.validate_tokens(ids) == len(ids)
        and matcher.consume_tokens(ids)
        and matcher.is_accepting()
    )


ONE = '<tool_call>\n{"name": "look_up", "arguments": {"city": "Paris"}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "get-time", "arguments": {"zone": "a", "hours": 3}}\n</tool_call>'


@pytest.mark.parametrize("name", ["smollm2", "qwen3"])
def test_calls_and_nothing_else(name: str, templates: dict[str, Template]) -> None:
    """Where the tags are control tokens as where they are words."""
    if name == "smollm2":
        tokenizer = make_tokenizer(SMOLLM2_TEMPLATE, ("<|im_start|>", "<|im_end|>"))
        chat = chat_format_for(tokenizer)
    else:
        tokenizer, chat = templates[name].tokenizer, templates[name].chat
    grammar = chat.answer_grammar(None, TOOLS)
    assert accepts(chat, tokenizer, grammar, ONE)
    assert accepts(chat, tokenizer, grammar, f"{ONE}\n{OTHER}")
    assert not accepts(chat, tokenizer, grammar, "It is noon.")
    assert not accepts(chat, tokenizer, grammar, OTHER.replace('"hours": 3', '"hours": "x"'))
    assert not accepts(chat, tokenizer, grammar, ONE.replace("look_up", "none_such"))
    single = chat.answer_grammar(None, TOOLS, several=False)
    assert accepts(chat, tokenizer, single, ONE)
    assert not accepts(chat, tokenizer, single, f"{ONE}\n{OTHER}")
    named = chat.answer_grammar(None, TOOLS[1:])
    assert accepts(chat, tokenizer, named, OTHER)
    assert not accepts(chat, tokenizer, named, ONE)


def test_content_of_a_schema_or_a_call(templates: dict[str, Template]) -> None:
    tokenizer, chat = templates["qwen3"].tokenizer, templates["qwen3"].chat
    only = chat.answer_grammar(SCHEMA)
    assert accepts(chat, tokenizer, only, '{"n": 3}')
    assert accepts(chat, tokenizer, only, '<think>\nhm, {"n": 4}?\n</think>\n\n{"n": 3}')
    assert not accepts(chat, tokenizer, only, '{"n": "3"}')
    assert not accepts(chat, tokenizer, only, ONE)
    either = chat.answer_grammar(SCHEMA, TOOLS)
    assert accepts(chat, tokenizer, either, '{"n": 3}')
    assert accepts(chat, tokenizer, either, ONE)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama3_1", '{"name": "look_up", "parameters": {"city": "Paris"}}'),
        ("gptoss", ' to=functions.look_up<|channel|>commentary json<|message|>{"city": "Paris"}'),
    ],
)
def test_what_is_forced_is_read(name: str, text: str, templates: dict[str, Template]) -> None:
    template = templates[name]
    grammar = template.chat.answer_grammar(None, TOOLS)
    assert accepts(template.chat, template.tokenizer, grammar, text)
    parsed = template.chat.parse(sampled(template.chat, text), TOOLS)
    (call,) = parsed.message["tool_calls"]  # type: ignore[misc]
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}  # type: ignore[index,call-overload,arg-type]


def test_a_syntax_that_is_not_json_cannot_be_forced(templates: dict[str, Template]) -> None:
    with pytest.raises(ChatError, match="a call of 'look_up' can't be forced"):
        templates["qwen3_6"].chat.answer_grammar(None, TOOLS)
