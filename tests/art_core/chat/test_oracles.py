# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false
"""What the libraries in the field make of the same conversations and the same tokens.

Where they differ from us, the difference is named here: it is why their parsers
and renderers aren't used as they are (see docs/chat.md).
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from jinja2 import TemplateError
from pydantic import TypeAdapter
from renderers import RendererConfig, create_renderer
from trl.chat_template_utils import add_response_schema

from art_core.chat import TemplateFormat
from art_core.chat.normalise import normalise, normalise_tools
from art_core.chat.turns import arguments_object
from art_core.chat.writer import Forms, as_messages
from art_core.errors import ChatError
from tests.art_core.chat.corpus import CONTROL_TEXT, CONVERSATIONS, Conversation
from tests.art_core.chat.templates import Template, renderer_templates, trl_templates

TRL = {template.name: template for template in trl_templates()}


@pytest.fixture(params=["some", pytest.param("all", marks=pytest.mark.long)])
def conversations(request: pytest.FixtureRequest) -> list[Conversation]:
    """All of them take minutes; the libraries' versions are what changes here, not our code."""
    return CONVERSATIONS[::4] if request.param == "some" else CONVERSATIONS


def answers(chat: TemplateFormat, conversation: Conversation) -> tuple[list[int], list[int]] | None:
    """A prompt, and what the template writes as the answer to it; None where it rewrites."""
    messages = conversation.messages
    roles = [message.get("role") for message in messages]
    if "assistant" not in roles[1:]:
        return None
    place = len(roles) - 1 - roles[::-1].index("assistant")
    try:
        prompt = chat.render(messages[:place], conversation.tools)
        whole = chat.render(messages, conversation.tools)
    except ChatError:
        return None
    rest = whole[len(prompt) :]
    ends = [at for at, token_id in enumerate(rest) if token_id in chat.stop_token_ids]
    if whole[: len(prompt)] != prompt or not ends:
        return None
    return prompt, rest[: ends[0] + 1]


def calls_of(message: dict[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        found.append(
            (
                call["function"]["name"],
                arguments_object(arguments) if isinstance(arguments, str) else arguments,
            )
        )
    return found


def as_words(message: dict[str, Any]) -> tuple[str, str, str]:
    reasoning = message.get("reasoning_content") or message.get("thinking") or ""
    calls = json.dumps(calls_of(message), sort_keys=True)
    return (message.get("content") or "").strip(), reasoning.strip(), calls


def _with_response_template() -> list[str]:
    names: list[str] = []
    for name, template in TRL.items():
        try:
            add_response_schema(template.tokenizer)
        except ValueError:
            continue
        names.append(name)
    return names


WITH_RESPONSE_TEMPLATE = _with_response_template()

TAGGED = ("qwen3_5", "qwen3_6", "qwen3_8", "nemotron", "glm4moe")
# Conversations that transformers' parser, with TRL's response templates, reads otherwise.
TRANSFORMERS_DIFFERS: dict[str, tuple[str, ...]] = {
    # Text that looks like an end of turn, or like a tag, ends the text that it stands in.
    "control tokens in an answer": ("",),
    "think tags in an answer": ("",),
    "text with tags": ("qwen", "lfm2", *TAGGED),
    "text with control tokens": ("lfm2", "gptoss"),
    # A pattern for names without dashes.
    **dict.fromkeys(
        ("name with dashes", "two calls", "two results, other way round", "one of two results"),
        ("gemma4", "lfm2"),
    ),
    # Text arguments lose the blanks around them; undeclared ones are all text.
    "text with blanks around": ("lfm2", *TAGGED),
    "undeclared argument": TAGGED,
    # Quotes and newlines in LFM2's Python strings.
    "text with quotes": ("lfm2",),
    "text with lines": ("lfm2",),
}


def transformers_differs(name: str, conversation: str) -> bool:
    if name.startswith("glm4moe"):
        return True  # <|observation|>, which ends the turn, is left in the content
    return name.startswith(TRANSFORMERS_DIFFERS.get(conversation, ("no template",)))


@pytest.mark.parametrize("name", WITH_RESPONSE_TEMPLATE)
def test_transformers_reads_the_same(name: str, conversations: list[Conversation]) -> None:
    template = TRL[name]
    for conversation in conversations:
        found = answers(template.chat, conversation)
        if found is None or transformers_differs(name, conversation.name):
            continue
        prompt, sampled = found
        ours = template.chat.parse(sampled, conversation.tools)
        tools: Any = conversation.tools
        theirs: Any = template.tokenizer.parse_response(sampled, prefix=prompt, tools=tools)
        assert as_words(ours.message) == as_words(theirs), conversation.name


# renderers strips the blanks around text arguments, and reports a text that no schema
# declares as invalid JSON.
RENDERERS_DIFFERS = ("text with blanks around", "no tools given")
RENDERER_TEMPLATES = [
    template
    for template in renderer_templates()
    # It doesn't write tool definitions, so we write tools by our own convention.
    if template.name != "deepseek-v3"
]


@pytest.mark.parametrize("template", RENDERER_TEMPLATES, ids=str)
def test_renderers_reads_the_same(template: Template, conversations: list[Conversation]) -> None:
    config: Any = TypeAdapter(RendererConfig).validate_python({"name": template.name})
    tokenizer: Any = template.tokenizer
    renderer = create_renderer(tokenizer, config)
    for conversation in conversations:
        found = answers(template.chat, conversation)
        if found is None or conversation.name in RENDERERS_DIFFERS:
            continue
        prompt, sampled = found
        ours = template.chat.parse(sampled, conversation.tools)
        if any("stray" in error for error in ours.errors):
            continue  # the template writes the turn in another way than it is sampled
        tools: Any = conversation.tools
        theirs = renderer.parse_response(sampled, tools=tools, prompt_ids=prompt)
        message = {
            "content": theirs.content,
            "reasoning_content": theirs.reasoning_content,
            "tool_calls": [
                {"function": {"name": call.name, "arguments": call.arguments}}
                for call in theirs.tool_calls
                if call.status == "ok"
            ],
        }
        assert as_words(ours.message) == as_words(message), conversation.name


@pytest.mark.parametrize("name", TRL)
def test_transformers_renders_the_same(name: str, conversations: list[Conversation]) -> None:
    """Token for token, wherever the template says all of it, as it was said, on its own."""
    template = TRL[name]
    chat, tokenizer = template.chat, template.tokenizer
    compared = 0
    for conversation in conversations:
        if conversation.refused is not None or re.search("control|tags", conversation.name):
            continue
        turns = normalise(conversation.messages)
        uses_tools = conversation.tools or any(turn.calls for turn in turns)
        if uses_tools and (chat.tools_as_text or chat.forms.arguments != "object"):
            continue
        tools: Any = normalise_tools(conversation.tools) or None
        try:
            messages = as_messages(turns, Forms(content=chat.forms.content), template.source or "")
            theirs = tokenizer.apply_chat_template(
                messages, tools=tools, add_generation_prompt=True, tokenize=False
            )
            ours = chat.render(conversation.messages, conversation.tools)
        except (TemplateError, ChatError, TypeError):
            continue
        text = str(theirs)
        if not all(turn.text.strip() in text for turn in turns):
            continue  # something is left out; ours says it in another way
        assert chat.decode(ours) == text, conversation.name
        assert ours == tokenizer.encode(text, add_special_tokens=False), conversation.name
        compared += 1
    assert compared > 5


@pytest.mark.parametrize("name", ["qwen3", "llama3_1", "gemma3", "deepseekv3"])
def test_transformers_own_guard_agrees(name: str) -> None:
    """``sanitize_control_tokens``: the same words, and the same control tokens."""
    template = TRL[name]
    messages: Any = [{"role": "user", "content": f"x {CONTROL_TEXT} y"}]
    ours = template.chat.render(messages)
    theirs: Any = template.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, sanitize_control_tokens=True, return_dict=False
    )
    controls = set(template.tokenizer.added_tokens_decoder)
    assert [id_ for id_ in ours if id_ in controls] == [id_ for id_ in theirs if id_ in controls]
    assert template.chat.decode(ours) == template.chat.decode(theirs)
