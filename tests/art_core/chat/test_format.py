# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What a chat format is made of, and what can't be made into one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from art_core.chat import TemplateFormat, chat_format_for
from art_core.errors import ChatError
from tests.art_core.chat.corpus import HELLO, LOOK_UP, call, calls, result, system, user
from tests.art_core.chat.templates import SMOLLM2_TEMPLATE, Template, make_tokenizer

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "[TOOL_CALLS]", "[ARGS]", "</s>")
PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def formatted(template: str, **options: Any) -> TemplateFormat:
    return chat_format_for(make_tokenizer(template, SPECIAL), **options)


def test_a_model_folder_says_what_ends_a_turn(
    tmp_path: Path, smollm2_like: PreTrainedTokenizerBase
) -> None:
    smollm2_like.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [601, 602]}))
    loaded: Any = AutoTokenizer.from_pretrained(tmp_path)
    chat = chat_format_for(loaded, stop_token_ids=[7])
    assert {7, 601, 602} < set(chat.stop_token_ids)


def test_a_tokenizer_with_several_templates() -> None:
    tokenizer = make_tokenizer(None, SPECIAL)
    tokenizer.chat_template = {"default": PLAIN, "tool_use": PLAIN.replace("\n{{", " tools\n{{")}
    with pytest.raises(ChatError, match="several chat templates: default, tool_use"):
        chat_format_for(tokenizer)
    chat = chat_format_for(tokenizer, template="tool_use")
    assert chat.decode(chat.render([HELLO])).startswith("<|im_start|>user tools\nHello")


def test_variables_reach_the_template(templates: dict[str, Template]) -> None:
    tokenizer = templates["qwen3"].tokenizer
    thinking = chat_format_for(tokenizer).render([HELLO])
    quiet = chat_format_for(tokenizer, variables={"enable_thinking": False})
    assert quiet.decode(quiet.render([HELLO])[len(thinking) :]) == "<think>\n\n</think>\n\n"


@pytest.mark.parametrize(
    ("template", "named"),
    [
        ("{{ raise_exception('no') }}", "refuses this conversation: no"),
        ("nothing", "leaves a user's message out"),
        (
            "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
            "an assistant's message out",
        ),
        ("{% for m in messages %}", "refuses this conversation"),
    ],
)
def test_a_template_that_cannot_be_used_is_named(template: str, named: str) -> None:
    with pytest.raises(ChatError, match=named):
        formatted(template)


def test_a_template_without_an_end_of_turn_is_refused() -> None:
    source = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    tokenizer = make_tokenizer(source, SPECIAL)
    tokenizer.eos_token = None
    with pytest.raises(ChatError, match="no token ends an assistant turn"):
        chat_format_for(tokenizer)
    assert chat_format_for(tokenizer, stop_token_ids=[5]).stop_token_ids == (5,)


UNKNOWN_SYNTAX = PLAIN.replace(
    "{{ m.content }}",
    "{{ m.content }}{% for c in m.tool_calls or [] %}CALL {{ c.function.name }} WITH "
    "{{ c.function.arguments | length }}{% endfor %}",
).replace("{% for m", "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m", 1)


def test_tool_calls_in_an_unknown_syntax_are_refused() -> None:
    chat = formatted(UNKNOWN_SYNTAX)
    assert chat.render([HELLO])
    for messages, tools in (([HELLO], LOOK_UP), ([HELLO, calls(call("{}")), result("7")], None)):
        with pytest.raises(ChatError, match="can't be read back"):
            chat.render(messages, tools)


MISTRAL = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'tool' %}[RESULT]{{ m.content }}[/RESULT]"
    "{% elif m.tool_calls %}{{ CALLS }}</s>{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)
LISTED = (
    "[TOOL_CALLS] [{% for c in m.tool_calls %}{% if c.id | length != 9 %}"
    "{{ raise_exception('ids need nine characters') }}{% endif %}"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}, '
    '"id": "{{ c.id }}"}{% if not loop.last %}, {% endif %}{% endfor %}]'
)
NAMED = (
    "{% for c in m.tool_calls %}[TOOL_CALLS]{{ c.function.name }}[ARGS]"
    "{{ c.function.arguments | tojson }}{% endfor %}"
)


@pytest.mark.parametrize("syntax", [LISTED, NAMED], ids=["list", "named"])
def test_mistrals_syntaxes(syntax: str) -> None:
    chat = formatted(MISTRAL.replace("{{ CALLS }}", syntax))
    assert not chat.tools_as_text
    messages: list[Any] = [HELLO, calls(call('{"city": "Paris"}', id_="call_that_is_long"))]
    rendered = chat.render([*messages, result("7", "call_that_is_long")], LOOK_UP)
    sampled = rendered[len(chat.render([HELLO])) :]
    parsed = chat.parse(sampled, LOOK_UP)
    (made,) = parsed.message["tool_calls"]  # type: ignore[misc]
    assert made["function"] == {"name": "look_up", "arguments": '{"city": "Paris"}'}  # type: ignore[index,call-overload]


SYSTEMLESS = PLAIN.replace(
    "{% for",
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for",
    1,
)


def test_a_system_message_where_there_is_no_such_role() -> None:
    chat = formatted(SYSTEMLESS)
    text = chat.decode(chat.render([system("Be brief."), system("Be kind."), user("Hi")]))
    assert "<|im_start|>user\nBe brief.\n\nBe kind.\n\nHi<|im_end|>" in text
    with pytest.raises(ChatError, match="no system"):
        chat.render([system("Be brief.")])


def test_an_error_is_raised_anew_each_time() -> None:
    """A remembered refusal must not drag along the tracebacks of earlier requests."""
    chat = formatted(SYSTEMLESS)
    errors: list[ChatError] = []
    for _ in range(2):
        with pytest.raises(ChatError) as caught:
            chat.render([system("Be brief.")])
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert str(errors[0]) == str(errors[1])


def test_an_unknown_renderer_is_refused() -> None:
    with pytest.raises(ChatError, match="renderer 'none-such' can't be used"):
        formatted(SMOLLM2_TEMPLATE, renderer="none-such")
    with pytest.raises(ChatError, match="renderer 'glm-5' can't be used"):
        formatted(SMOLLM2_TEMPLATE, renderer="glm-5")  # this tokenizer lacks its control tokens


def test_a_fine_tune_is_known_by_what_its_template_writes(templates: dict[str, Template]) -> None:
    """Qwen3's template, changed: no name or hash of it is known anywhere."""
    source = templates["qwen3"].source or ""
    changed = source.replace("# Tools", "# My own tools").replace("arguments", "parameters")
    changed = changed.replace("tool_call.parameters", "tool_call.arguments")
    chat = chat_format_for(templates["qwen3"].tokenizer, template=changed)
    assert not chat.tools_as_text
    assert "# My own tools" in chat.decode(chat.render([HELLO], LOOK_UP))
