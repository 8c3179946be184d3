"""What was sampled becomes a message: every syntax, well-formed and not, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from art_core.chat import Delta, ParsedMessage, TemplateFormat
from tests.art_core.chat.corpus import TYPED, tool
from tests.art_core.chat.templates import Template

Sampled = Callable[[TemplateFormat, str], list[int]]
TOOLS: list[Any] = [*TYPED, tool("get-time")]


def sampled(chat: TemplateFormat, text: str) -> list[int]:
    """Token ids of text in which control tokens are meant."""
    vocabulary = chat._vocabulary  # pyright: ignore[reportPrivateUsage]
    return vocabulary.encode(vocabulary.mark(text))


def parse(chat: TemplateFormat, text: str) -> ParsedMessage:
    return chat.parse(sampled(chat, text), TOOLS, call_id_seed="s")


def calls_of(parsed: ParsedMessage) -> list[tuple[str, Any]]:
    calls: Any = parsed.message.get("tool_calls") or []
    return [(item["function"]["name"], json.loads(item["function"]["arguments"])) for item in calls]


TWO: list[tuple[str, Any]] = [("look_up", {"text": "a b", "count": 2}), ("get-time", {})]
WELL_FORMED = {
    "qwen3": (
        '<tool_call>\n{"name": "look_up", "arguments": {"text": "a b", "count": 2}}\n</tool_call>\n'
        '<tool_call>{"name":"get-time"}</tool_call><|im_end|>'
    ),
    "qwen3_6": (
        "hm</think>\n\n<tool_call>\n<function=look_up>\n<parameter=text>\na b\n</parameter>\n"
        "<parameter=count>\n2\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call><function=get-time></function></tool_call><|im_end|>"
    ),
    "glm4moe": (
        "\n<think></think>\n<tool_call>look_up\n<arg_key>text</arg_key>\n<arg_value>a b</arg_value>"
        "\n<arg_key>count</arg_key><arg_value>2</arg_value>\n</tool_call>"
        "\n<tool_call>get-time</tool_call><|observation|>"
    ),
    "gemma4_v5": (
        '<|tool_call>call:look_up{text:<|"|>a b<|"|>, count:2}<tool_call|>'
        "<|tool_call>call:get-time{}<tool_call|><|tool_response>"
    ),
    "lfm2_2_5": (
        "<|tool_call_start|>[look_up(text='a b', count=2), get-time()]<|tool_call_end|><|im_end|>"
    ),
    "muse_glimmer": (
        ' to=look_up<|message|><atem:function_calls>\n<atem:invoke name="look_up">\n'
        '<atem:parameter name="text">a b</atem:parameter>\n'
        '<atem:parameter name="count">2</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
        "<|eom|><|start|>assistant to=get-time<|message|><atem:function_calls>"
        '<atem:invoke name="get-time"></atem:invoke></atem:function_calls><|eot|>'
    ),
}


@pytest.mark.parametrize("name", WELL_FORMED)
def test_two_calls_in_each_syntax(templates: dict[str, Template], name: str) -> None:
    parsed = parse(templates[name].chat, WELL_FORMED[name])
    assert parsed.errors == []
    assert calls_of(parsed) == TWO
    assert parsed.message["content"] is None


ONE_CALL = {
    "llama3_1": '{"name": "look_up", "parameters": {"text": "a b"}}<|eot_id|>',
    "gptoss": (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary"
        ' to=functions.look_up <|constrain|>json<|message|>{"text": "a b"}<|call|>'
    ),
}


@pytest.mark.parametrize("name", ONE_CALL)
def test_models_that_make_one_call(templates: dict[str, Template], name: str) -> None:
    parsed = parse(templates[name].chat, ONE_CALL[name])
    assert calls_of(parsed) == [("look_up", {"text": "a b"})]
    assert parsed.errors == []


MALFORMED = {
    "qwen3": [
        '<tool_call>\n{"name": "look_up", "arguments": {"text": }}\n</tool_call>',
        '<tool_call>\n{"name": "look_up", "arguments": [1]}\n</tool_call>',
        '<tool_call>\n{"arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "look_up", "arguments": {"count": NaN}}\n</tool_call>',
        '<tool_call>\n{"name": "look_up"',
        "<tool_call>\n</tool_call>",
        "<tool_call>" + "[" * 3000 + "</tool_call>",
        '<tool_call>{"name": "look_up", <tool_response> "arguments": {}}</tool_call>',
    ],
    "qwen3_6": [
        "<tool_call>\n<parameter=text>a</parameter>\n</tool_call>",
        "<tool_call>\n<function=look_up>\n<parameter=text>a\n</function>\n</tool_call>",
        "<tool_call><function=look_up><parameter=a>1</parameter><parameter=a>2</parameter>"
        "</function></tool_call>",
    ],
    "gemma4_v5": [
        "<|tool_call>look_up{}<tool_call|>",
        "<|tool_call>call:look_up{text:a b}<tool_call|>",
        "<|tool_call>call:look_up{count:2,}<tool_call|>",
        "<|tool_call>call:look_up{count:2}}<tool_call|>",
        "<|tool_call>call:look_up{count:" + "[" * 3000 + "}<tool_call|>",
    ],
    "lfm2_2_5": [
        "<|tool_call_start|>[look_up('a')]<|tool_call_end|>",
        "<|tool_call_start|>[]<|tool_call_end|>",
        '<|tool_call_start|>look_up(text="a")<|tool_call_end|>',
    ],
    "llama3_1": ['{"name": "look_up", "parameters": 7}', '{"name": "look_up", '],
    "gptoss": ["<|channel|>commentary to=functions.look_up<|message|>{nope"],
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in MALFORMED.items() for text in texts]
)
def test_a_malformed_call_is_content_and_an_error(
    templates: dict[str, Template], name: str, text: str
) -> None:
    chat = templates[name].chat
    prefix = (
        "</think>" if chat.grammar.reasoning and chat.grammar.reasoning.opened_by_prompt else ""
    )
    parsed = parse(chat, prefix + text)
    assert "tool_calls" not in parsed.message
    assert str(parsed.message["content"]).startswith(text[:12])
    assert any(error.startswith("tool call: ") for error in parsed.errors)


def test_a_good_call_beside_a_malformed_one(templates: dict[str, Template]) -> None:
    good = '<tool_call>{"name": "get-time", "arguments": {}}</tool_call>'
    parsed = parse(templates["qwen3"].chat, f"{good}\n<tool_call>oops</tool_call>\n{good}")
    assert calls_of(parsed) == [("get-time", {})] * 2
    assert parsed.message["content"] == "<tool_call>oops</tool_call>"
    assert len(parsed.errors) == 1


def test_a_tag_in_ordinary_tokens_is_no_tag(templates: dict[str, Template]) -> None:
    """Qwen3's tags are control tokens: spelled in ordinary ones they are words."""
    chat = templates["qwen3"].chat
    text = '<tool_call>{"name": "get-time"}</tool_call> <think>no</think>'
    parsed = chat.parse(chat.encode(text), TOOLS)
    assert parsed.message == {"role": "assistant", "content": text}
    assert parsed.errors == []


@pytest.mark.parametrize(
    ("declared", "written", "value"),
    [
        ("text", "75001", "75001"),
        ("text", "true", "true"),
        ("text", "  x\n", "  x\n"),
        ("count", "3", 3),
        ("ratio", "1.0", 1.0),
        ("flag", "true", True),
        ("flag", "True", True),
        ("nothing", "None", None),
        ("items", '["a", 1]', ["a", 1]),
        ("count", "many", "many"),
        ("other", "3", 3),
        ("other", "x y", "x y"),
    ],
)
def test_bare_values_are_typed_by_the_schema(
    templates: dict[str, Template], declared: str, written: str, value: Any
) -> None:
    parsed = parse(
        templates["qwen3_8"].chat,
        f"</think><tool_call>\n<function=look_up>\n<parameter={declared}>\n{written}\n"
        "</parameter>\n</function>\n</tool_call>",
    )
    (_, arguments), *_ = calls_of(parsed)
    assert json.dumps(arguments) == json.dumps({declared: value})


def test_reasoning_and_content(templates: dict[str, Template]) -> None:
    chat = templates["qwen3"].chat
    parsed = parse(chat, "<think>\nHm.\n\nSo?\n</think>\n\nIt is noon.\n<|im_end|>")
    assert parsed.message == {
        "role": "assistant",
        "content": "It is noon.\n",
        "reasoning_content": "Hm.\n\nSo?",
    }


def test_reasoning_that_the_prompt_opened(templates: dict[str, Template]) -> None:
    chat = templates["qwen3_6"].chat
    assert parse(chat, "Hm.\n</think>\n\nNoon.").message["reasoning_content"] == "Hm."
    assert parse(chat, "Hm, <tool_call>").message == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "Hm, <tool_call>",
    }


def test_channels(templates: dict[str, Template]) -> None:
    parsed = parse(
        templates["gptoss"].chat,
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>"
        "It is noon.<|return|>",
    )
    assert parsed.message == {
        "role": "assistant",
        "content": "It is noon.",
        "reasoning_content": "Hm.",
    }
    assert parsed.errors == []


def test_stray_control_tokens_are_left_out_and_reported(smollm2: TemplateFormat) -> None:
    parsed = parse(smollm2, "It is<|im_start|> noon.<|im_end|>not this")
    assert parsed.message["content"] == "It is noon."
    assert parsed.errors == ["stray control token <|im_start|>"]


def test_call_ids_follow_from_the_seed(templates: dict[str, Template]) -> None:
    chat = templates["qwen3"].chat
    ids = sampled(chat, WELL_FORMED["qwen3"])

    def given(seed: str) -> list[str]:
        made: Any = chat.parse(ids, TOOLS, call_id_seed=seed).message["tool_calls"]
        return [item["id"] for item in made]

    assert given("one") == given("one")
    assert len({*given("one"), *given("two")}) == 4


def feed(
    chat: TemplateFormat, ids: list[int], stop: tuple[str, ...]
) -> tuple[str, ParsedMessage, str | None]:
    parser = chat.stream_parser(TOOLS, stop=stop)
    deltas = [parser.feed([id_]) for id_ in ids]
    last, message = parser.finish()
    return "".join(delta.content for delta in (*deltas, last)), message, parser.stopped_by


@pytest.mark.parametrize(
    ("stop", "content", "stopped_by"),
    [
        ((), "One. Two. Three.", None),
        (("Two",), "One. ", "Two"),
        (("Three.", " T"), "One.", " T"),
        (("Four",), "One. Two. Three.", None),
        (("Three.!",), "One. Two. Three.", None),
        (("",), "One. Two. Three.", None),
        (("<|im_end|>",), "One. Two. Three.", None),
    ],
)
def test_stop_strings_end_the_message(
    smollm2: TemplateFormat, stop: tuple[str, ...], content: str, stopped_by: str | None
) -> None:
    ids = sampled(smollm2, "One. Two. Three.<|im_end|>")
    streamed, parsed, found = feed(smollm2, ids, stop)
    assert streamed == content == parsed.message["content"]
    assert found == stopped_by


def test_a_control_token_as_stop_string(smollm2: TemplateFormat) -> None:
    ids = sampled(smollm2, "One.<|im_start|>Two.")
    assert feed(smollm2, ids, ("<|im_start|>",))[::2] == ("One.", "<|im_start|>")


def test_deltas_say_whether_there_is_anything() -> None:
    assert not Delta()
    assert Delta(content="x")


def test_characters_are_never_cut(smollm2: TemplateFormat) -> None:
    parser = smollm2.stream_parser()
    pieces = [parser.feed([id_]).content for id_ in smollm2.encode("a🙂é漢")]
    assert [piece for piece in pieces if piece] == ["a", "🙂", "é", "漢"]
    assert parser.text == "a🙂é漢"


def test_errors_are_readable(templates: dict[str, Template]) -> None:
    """Control tokens stand in them as people know them, not by their secret names."""
    chat = templates["glm4moe"].chat
    parsed = parse(chat, "<tool_call>look_up\n<arg_key>city</arg_key>Paris</tool_call>")
    assert parsed.errors == [
        "tool call: expected a parameter or the end of the call: '<arg_key>city</arg_key>Paris'"
    ]
