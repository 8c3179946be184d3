"""What holds for any conversation and any sampled token ids."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_core.chat import Delta, ParsedMessage, TemplateFormat, canonical_key
from art_core.errors import ChatError
from art_core.trajectories import Message
from tests.art_core.chat.corpus import CONTROL_TEXT, LOOK_UP, TAG_TEXT
from tests.art_core.chat.templates import Template, trl_templates


@pytest.fixture(params=[60, pytest.param(1000, marks=pytest.mark.long)])
def examples(request: pytest.FixtureRequest) -> int:
    """How many examples are tried, per property and template."""
    return request.param


BY_NAME = {template.name: template for template in trl_templates()}
NAMES = ["qwen2_5", "qwen3", "qwen3_6", "gptoss", "glm4moe", "gemma4_v5", "lfm2_2_5", "llama3_1"]
TEXTS = st.text(max_size=20) | st.sampled_from([CONTROL_TEXT, TAG_TEXT, "", " \n", "</think>"])
ARGUMENTS = st.dictionaries(
    st.sampled_from(["city", "n", "x-y"]), TEXTS | st.integers() | st.booleans() | st.none()
)


def called_turns() -> st.SearchStrategy[list[Message]]:
    def build(arguments: dict[str, Any], said: str) -> list[Message]:
        function: Any = {"name": "look_up", "arguments": json.dumps(arguments)}
        call: Any = {"id": "call_1", "type": "function", "function": function}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": said},
        ]

    return st.builds(build, ARGUMENTS, TEXTS)


def answered_turns() -> st.SearchStrategy[list[Message]]:
    def build(said: str, more: str) -> list[Message]:
        return [{"role": "assistant", "content": said}, {"role": "user", "content": more}]

    return st.builds(build, TEXTS, TEXTS)


def conversation(system: str | None, first: str, rest: list[list[Message]]) -> list[Message]:
    opening: list[Message] = [] if system is None else [{"role": "system", "content": system}]
    return [
        *opening,
        {"role": "user", "content": first},
        *(turn for turns in rest for turn in turns),
    ]


CONVERSATIONS = st.builds(
    conversation,
    st.none() | TEXTS,
    TEXTS,
    st.lists(called_turns() | answered_turns(), max_size=3),
)


def vocabulary_size(template: Template) -> int:
    return len(template.tokenizer) + 3  # and some ids that stand for nothing


def sampled_ids(template: Template) -> st.SearchStrategy[list[int]]:
    """Any ids; but control tokens and spelled-out markup often enough to matter."""
    vocabulary = template.chat._vocabulary  # pyright: ignore[reportPrivateUsage]
    controls = st.sampled_from(list(vocabulary.ids.values()) or [0])
    pieces = (
        st.lists(st.integers(0, vocabulary_size(template) - 1), max_size=4)
        | st.lists(controls, min_size=1, max_size=2)
        | st.sampled_from(
            [TAG_TEXT, '{"name": "look_up", "', "arguments", '": {}}', "\n", "🙂"]
        ).map(template.chat.encode)
    )
    return st.lists(pieces, max_size=8).map(lambda lists: [id_ for ids in lists for id_ in ids])


def stream(chat: TemplateFormat, ids: list[int], cuts: list[int]) -> tuple[Message, ParsedMessage]:
    """What the deltas add up to, fed in pieces of the given lengths; and the parsed message."""
    parser = chat.stream_parser(LOOK_UP, call_id_seed="s")
    deltas: list[Delta] = []
    while ids:
        length = cuts.pop() if cuts else 1
        deltas.append(parser.feed(ids[:length]))
        ids = ids[length:]
    last, parsed = parser.finish()
    deltas.append(last)
    content = "".join(delta.content for delta in deltas)
    reasoning = "".join(delta.reasoning for delta in deltas)
    calls: list[Any] = [call for delta in deltas for call in delta.tool_calls]
    assert [call["index"] for call in calls] == list(range(len(calls)))
    message: Message = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["content"] = content or None
        message["tool_calls"] = [
            {key: value for key, value in call.items() if key != "index"} for call in calls
        ]
    return message, parsed


@pytest.mark.parametrize("name", NAMES)
def test_any_ids_are_read_the_same_whole_and_streamed(name: str, examples: int) -> None:
    template = BY_NAME[name]
    chat = template.chat

    @given(sampled_ids(template), st.lists(st.integers(1, 5), max_size=6))
    @settings(max_examples=examples, deadline=None)
    def check(ids: list[int], cuts: list[int]) -> None:
        whole = chat.parse(ids, LOOK_UP, call_id_seed="s")
        added_up, streamed = stream(chat, ids, cuts)
        assert streamed == whole
        assert added_up == whole.message
        json.dumps(whole.message, ensure_ascii=False).encode()  # nothing that JSON can't carry
        canonical_key(whole.message)

    check()


@pytest.mark.parametrize("name", [*NAMES, "llama3", "gemma3"])
def test_any_ids_are_gone_on_from_or_left_alone(name: str, examples: int) -> None:
    """A continued prompt begins with the recorded ids, and what follows says all that is new."""
    template = BY_NAME[name]
    chat = template.chat

    @given(CONVERSATIONS, sampled_ids(template), TEXTS)
    @settings(max_examples=examples, deadline=None)
    def check(messages: list[Message], ids: list[int], more: str) -> None:
        try:
            prompt = chat.render(messages, LOOK_UP)
            parsed = chat.parse(ids, LOOK_UP)
            recorded = [*prompt, *ids]
            new: list[Message] = [{"role": "user", "content": more}]
            bridged = chat.bridge(
                recorded, [*messages, parsed.message], new, LOOK_UP, sampled=len(ids)
            )
        except ChatError:
            return
        if bridged is not None:
            assert bridged[: len(recorded)] == recorded
            assert more.strip() in chat.decode(bridged[len(recorded) :])

    check()


@pytest.mark.parametrize("name", NAMES)
def test_words_do_not_change_the_structure(name: str, examples: int) -> None:
    """The control tokens of a prompt are those of the same conversation with harmless words."""
    template = BY_NAME[name]
    chat = template.chat
    controls = set(chat._vocabulary.ids.values())  # pyright: ignore[reportPrivateUsage]

    def structure(messages: list[Message]) -> list[int]:
        return [id_ for id_ in chat.render(messages, LOOK_UP) if id_ in controls]

    @given(CONVERSATIONS)
    @settings(max_examples=examples, deadline=None)
    def check(messages: list[Message]) -> None:
        harmless = [_with_harmless_words(message) for message in messages]
        try:
            structures = structure(messages), structure(harmless)
        except ChatError:
            return
        assert structures[0] == structures[1]

    check()


def _with_harmless_words(message: Message) -> Message:
    content = message.get("content")
    if isinstance(content, str):
        message = {**message, "content": "word" if content.strip() else content}
    calls: Any = message.get("tool_calls") or []
    for call in calls:
        arguments = {
            key: "word" if isinstance(value, str) and value.strip() else value
            for key, value in json.loads(call["function"]["arguments"]).items()
        }
        function = {**call["function"], "arguments": json.dumps(arguments)}
        message = {**message, "tool_calls": [{**call, "function": function}]}
    return message


@given(st.lists(st.integers(0, vocabulary_size(BY_NAME["llama3"])), max_size=20), TEXTS)
@settings(max_examples=200, deadline=None)
def test_a_template_that_keeps_turns_always_goes_on(ids: list[int], more: str) -> None:
    """Whatever was sampled: a turn without calls needs nothing that the template would redo."""
    chat = BY_NAME["llama3"].chat
    messages: list[Message] = [{"role": "user", "content": "Hello"}]
    prompt = chat.render(messages)
    parsed = chat.parse(ids)
    if "tool_calls" in parsed.message:
        return
    new: list[Message] = [{"role": "user", "content": more}]
    bridged = chat.bridge([*prompt, *ids], [*messages, parsed.message], new, sampled=len(ids))
    ended_twice = any(id_ in chat.stop_token_ids for id_ in ids[:-1])
    assert bridged is not None or ended_twice


@given(TEXTS, st.lists(st.sampled_from(["a", "b", "ab", "\n", "🙂"]), max_size=3))
@settings(max_examples=200, deadline=None)
def test_a_message_ends_before_the_first_stop_string(text: str, stop: list[str]) -> None:
    chat = BY_NAME["qwen2_5"].chat
    parser = chat.stream_parser(stop=stop)
    deltas = [parser.feed([id_]) for id_ in chat.encode(text)]
    last, _ = parser.finish()
    places = [at for each in stop if (at := text.find(each)) >= 0]
    expected = text[: min(places)] if places else text
    assert "".join(delta.content for delta in (*deltas, last)) == expected
    assert (parser.stopped_by is not None) == bool(places)
