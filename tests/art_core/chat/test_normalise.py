"""What clients send, brought into one form; and the key that is blind to what they change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_core.chat import canonical_key
from art_core.chat.normalise import normalise, normalise_tools
from art_core.errors import ChatError
from art_core.trajectories import Message
from tests.art_core.chat.corpus import HELLO, answer, call, calls, result, user

RESPONSE: Message = {
    "role": "assistant",
    "content": None,
    "reasoning_content": "Let me look.",
    "tool_calls": [
        call('{"city": "Par\\u0069s", "days": 1.0, "deep": {"a": true, "b": null}}', id_="call_1")
    ],
}


def same_call(arguments: str, **fields: Any) -> Message:
    return {**RESPONSE, "tool_calls": [call(arguments, id_="call_1")], **fields}


@pytest.mark.parametrize(
    "sent_back",
    [
        same_call('{"city":"Paris","days":1.0,"deep":{"a":true,"b":null}}'),
        same_call('{"days": 1, "deep": {"b": null, "a": true}, "city": "Paris"}'),
        same_call('{ "city" : "\\u0050aris",\n"days": 1e0, "deep": {"a":true,"b":null} }'),
        {key: value for key, value in RESPONSE.items() if key != "reasoning_content"},
        {key: value for key, value in RESPONSE.items() if key != "content"},
        {**RESPONSE, "content": ""},
        {**RESPONSE, "content": []},
        {**RESPONSE, "refusal": None, "annotations": [], "audio": None, "function_call": None},
        {**RESPONSE, "provider_specific_fields": {"x": 1}, "name": "supervisor"},
        {**RESPONSE, "role": "ai", "id": "run-1", "response_metadata": {"a": 1}},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "name": "look_up",
                    "args": {"city": "Paris", "days": 1, "deep": {"a": True, "b": None}},
                    "id": "call_1",
                    "type": "tool_call",
                }
            ],
        },
    ],
)
def test_a_response_sent_back_has_its_key(sent_back: Message) -> None:
    assert canonical_key(sent_back) == canonical_key(RESPONSE)


@pytest.mark.parametrize(
    "other",
    [
        same_call('{"city": "Paris", "days": true, "deep": {"a": true, "b": null}}'),
        same_call('{"city": "Paris", "days": 1.5, "deep": {"a": true, "b": null}}'),
        same_call('{"city": "Paris", "days": 1.0, "deep": {"a": 1, "b": null}}'),
        same_call('{"city": "Paris", "days": 1.0, "deep": {"a": true}}'),
        same_call('{"city": "Paris", "days": "1", "deep": {"a": true, "b": null}}'),
        {**RESPONSE, "content": "Wait."},
        {**RESPONSE, "tool_calls": [*RESPONSE["tool_calls"], call("{}", id_="call_2")]},  # type: ignore[misc]
        {**RESPONSE, "tool_calls": [{**call("{}"), "id": "call_2"}]},
    ],
)
def test_another_response_has_another_key(other: Message) -> None:
    assert canonical_key(other) != canonical_key(RESPONSE)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)


@given(OBJECTS)
def test_the_key_survives_any_way_of_writing_json(arguments: dict[str, Any]) -> None:
    spellings = [
        json.dumps(arguments),
        json.dumps(arguments, ensure_ascii=False, separators=(",", ":")),
        json.dumps(dict(reversed(arguments.items())), indent=2),
    ]
    keys = {canonical_key(calls(call(spelling))) for spelling in spellings}
    assert len(keys) == 1


@given(OBJECTS, OBJECTS)
def test_equal_keys_mean_equal_arguments(one: dict[str, Any], other: dict[str, Any]) -> None:
    keys = [canonical_key(calls(call(json.dumps(arguments)))) for arguments in (one, other)]
    if keys[0] == keys[1]:
        assert one == other


def test_one_text_part_is_a_string() -> None:
    assert canonical_key(user([{"type": "text", "text": "Hi"}])) == canonical_key(user("Hi"))


def test_developer_is_system_to_the_key() -> None:
    messages: list[Message] = [{"role": role, "content": "x"} for role in ("system", "developer")]
    assert canonical_key(messages[0]) == canonical_key(messages[1])


def test_results_come_in_the_order_of_their_calls() -> None:
    both = calls(call("{}", id_="a"), call("{}", id_="b"))
    turns = normalise([HELLO, both, result("2", "b"), result("1", "a"), user("ok")])
    assert [turn.text for turn in turns[2:4]] == ["1", "2"]


def test_results_without_ids_answer_the_calls_in_turn() -> None:
    both = calls(call("{}", name="one", id_="a"), call("{}", name="two", id_="b"))
    tool: Message = {"role": "tool", "content": "x"}
    turns = normalise([HELLO, both, {**tool, "name": "two"}, tool])
    assert [(turn.call_id, turn.name) for turn in turns[2:]] == [("a", "one"), ("b", "two")]


def test_the_deprecated_function_call_becomes_a_tool_call() -> None:
    old = answer(None, function_call={"name": "f", "arguments": "{}"})
    turns = normalise([HELLO, old, {"role": "function", "name": "f", "content": "7"}])
    assert turns[1].calls[0].name == "f"
    assert (turns[2].role, turns[2].text) == ("tool", "7")


class SdkMessage:
    """As openai's, litellm's and langchain's message objects are."""

    def model_dump(self) -> dict[str, Any]:
        return {"role": "assistant", "content": "Hi", "refusal": None}


def test_message_objects_are_read() -> None:
    messages: Any = [HELLO, SdkMessage()]
    assert normalise(messages)[1].text == "Hi"


def test_a_flat_tool_is_nested_and_completed() -> None:
    assert normalise_tools([{"type": "function", "name": "ping", "strict": None}]) == [
        {
            "type": "function",
            "function": {
                "name": "ping",
                "description": "",
                "parameters": {"type": "object", "properties": {}},
            },
        }
    ]


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ([], "messages is empty"),
        (["hi"], r"messages\[0\] is str"),
        ([{"content": "x"}], r"messages\[0\] has role None"),
        ([HELLO, {"role": "robot"}], r"messages\[1\] has role 'robot'"),
        ([user(7)], r"messages\[0\]\.content isn't text"),
        ([user([{"type": "file"}])], r"messages\[0\]\.content\[0\] is of type 'file'"),
        ([HELLO, calls({"id": "a", "function": {}})], r"messages\[1\]\.tool_calls\[0\] has"),
        ([HELLO, result("7", "zz")], r"messages\[1\] is a tool result for 'zz'"),
        ([{**HELLO, "name": 7}], r"messages\[0\]\.name is 7"),
    ],
)
def test_what_has_no_meaning_is_named(messages: Any, named: str) -> None:
    with pytest.raises(ChatError, match=named):
        normalise(messages)


@pytest.mark.parametrize("tool", [{"type": "web_search"}, {"type": "function", "function": {}}])
def test_tools_that_are_no_functions_are_named(tool: Any) -> None:
    with pytest.raises(ChatError, match=r"tools\[0\] is"):
        normalise_tools([tool])
