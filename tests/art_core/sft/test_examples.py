"""What is read, what is left out, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import art_core as art
from art_core.chat import TemplateFormat
from art_core.config import SftConfig
from art_core.errors import ExampleError
from art_core.sft.examples import Prepares, check_no_leak, prepare
from art_core.sft.reading import ExampleSource
from tests.art_core.sft.conftest import TOOL, conversation

SKIP = SftConfig(bad_examples="skip", long_examples="skip")
Read = Callable[..., Prepares]


@pytest.fixture
def read(smollm2_chat: TemplateFormat) -> Read:
    def read(source: ExampleSource, config: SftConfig = SKIP, **more: Any) -> Prepares:
        return prepare(source, smollm2_chat, config, context_length=2048, **more)

    return read


def write(path: Path, *lines: Any) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def chat(*turns: str, **more: Any) -> dict[str, Any]:
    """User and assistant in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]
    return {"messages": messages, **more}


def learned(prepares: Prepares, format: TemplateFormat) -> list[list[str]]:
    """The text that is learned of each example's rows."""
    return [
        [
            format.decode([t for t, on in zip(row.token_ids, row.trained, strict=True) if on])
            for row in example.rows
        ]
        for example in prepares.examples
    ]


def test_every_form_says_the_same(read: Read, smollm2_chat: TemplateFormat, tmp_path: Path) -> None:
    plain = conversation(3)
    messages, tools = plain["messages"], plain["tools"]
    nulls = [{"name": None, "tool_calls": None, "tool_call_id": None, **m} for m in messages]
    trajectory = art.Trajectory(messages_and_choices=messages, tools=tools, reward=1.0)
    group = art.TrajectoryGroup([trajectory, RuntimeError("lost")])
    path = write(
        tmp_path / "all.jsonl",
        plain,
        {"messages": nulls, "tools": json.dumps(tools), "source": "a dataset"},
        {"prompt": messages[:1], "completion": messages[1:], "tools": tools},
        trajectory.model_dump_json(),
        "",
        group.model_dump_json(),
    )
    prepares = read(path, SftConfig())
    assert prepares.problems == []
    assert [example.rows for example in prepares.examples] == [prepares.examples[0].rows] * 5
    assert [where for where, _ in prepares.duplicates] == [
        "all.jsonl:2", "all.jsonl:3", "all.jsonl:4", "all.jsonl:6 trajectory 0",
    ]  # fmt: skip
    (text,) = learned(prepares, smollm2_chat)[0]
    assert text == (
        '<tool_call>\n{"name": "add", "arguments": {"n": 3}}\n</tool_call><|im_end|>'
        "It is 4.<|im_end|>"
    )
    assert read([plain, trajectory, group]).examples[2].rows == prepares.examples[0].rows


def test_only_the_completion_is_learned(read: Read, smollm2_chat: TemplateFormat) -> None:
    messages = chat("a", "b", "c", "d")["messages"]
    prepares = read([{"prompt": messages[:3], "completion": messages[3:]}])
    assert learned(prepares, smollm2_chat) == [["d<|im_end|>"]]


def test_a_weight_of_0_is_context(read: Read, smollm2_chat: TemplateFormat) -> None:
    example = chat("a", "b", "c", "d")
    example["messages"][1]["weight"] = 0
    assert learned(read([example]), smollm2_chat) == [["d<|im_end|>"]]


ANSWER = {"role": "assistant", "content": "b"}
BAD: list[tuple[Any, str, str]] = [
    ("{", "malformed", "not JSON"),
    ("[]", "malformed", "a list, not an object"),
    ('"text"', "malformed", "a str, not an object"),
    ("[" * 100_000, "malformed", "not JSON"),
    ({}, "malformed", "it has the fields none"),
    ({"text": "a"}, "malformed", "it has the fields 'text'"),
    ({"messages": None}, "malformed", "messages is a NoneType"),
    ({"messages": "hi"}, "malformed", "messages is a str"),
    ({"messages": ["hi"]}, "malformed", "messages[0] is a str"),
    ({"prompt": "a", "completion": "b"}, "malformed", "prompt is a str"),
    ({**chat("a", "b"), "tools": "{"}, "malformed", "tools isn't JSON"),
    ({**chat("a", "b"), "tools": {"name": "x"}}, "malformed", "tools is a dict"),
    ({**chat("a", "b"), "tools": ["x"]}, "malformed", "tools[0] is a str"),
    ({"trajectories": [{"reward": "high"}]}, "malformed", "validation error"),
    (
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "weight": 0.5}]},
        "malformed",
        "messages[1].weight is 0.5",
    ),
    ({"messages": []}, "empty", "no messages"),
    (chat("a", ""), "empty", "messages[1] is an answer without text"),
    ({"messages": chat("a")["messages"] * 2}, "unanswered", "no message is the assistant's"),
    (
        {"messages": [{"role": "assistant", "content": "Hello!"}]},
        "nothing to learn",
        "its only answer comes first",
    ),
    (
        {"prompt": chat("a", "b")["messages"], "completion": chat("c")["messages"]},
        "nothing to learn",
        "all its answers are context",
    ),
    (
        {"messages": [*chat("a", "b")["messages"], {"role": "robot", "content": "c"}]},
        "inexpressible",
        "messages[2] has role 'robot'",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}, ANSWER]},
        "inexpressible",
        "image_url",
    ),
    (
        {"messages": [{"role": "user", "content": "a"}, {**ANSWER, "reasoning_content": "hm"}]},
        "inexpressible",
        "the reasoning of this answer",
    ),
    ({"trajectories": 5}, "malformed", "trajectories isn't a list"),
    (
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": 5}]},
        "inexpressible",
        "messages[1].tool_calls is 5",
    ),
    (chat("a", "b \ud800"), "inexpressible", "half of a character"),
    (chat("a \ud800", "b"), "inexpressible", "half of a character"),
    (chat("word " * 3000, "b"), "too long", "tokens; at most 2048 fit"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "kind", "reason"), BAD)
def test_what_is_bad_is_named_by_line(
    read: Read, tmp_path: Path, bad: Any, kind: str, reason: str
) -> None:
    path = write(tmp_path / "x.jsonl", chat("good", "fine"), bad, chat("also good", "fine"))
    prepares = read(path)
    (problem,) = prepares.problems
    assert (problem.where, problem.kind) == ("x.jsonl:2", kind)
    assert reason in problem.reason
    assert len(prepares.examples) == 2
    assert any(f"1 {kind}" in line for line in prepares.lines())
    with pytest.raises(ExampleError, match="x.jsonl:2 is " + kind):
        read(path, SftConfig())


def test_long_ones_and_bad_ones_are_told_apart(read: Read) -> None:
    long, bad = chat("word " * 100, "b"), chat("a", "")
    only_long = SftConfig(max_length=64, long_examples="skip")
    assert len(read([chat("a", "b"), long], only_long).problems) == 1
    with pytest.raises(ExampleError, match="1 empty"):
        read([chat("a", "b"), long, bad], only_long)
    with pytest.raises(ExampleError, match=r"1 too long.*at most 64 fit"):
        read([chat("a", "b"), long, bad], SftConfig(max_length=64, bad_examples="skip"))


def test_nothing_left_is_refused(read: Read, tmp_path: Path) -> None:
    for source in ([], [chat("a")], write(tmp_path / "empty.jsonl", "")):
        with pytest.raises(ExampleError, match="no examples to learn from"):
            read(source)
    with pytest.raises(ExampleError, match="there is no file"):
        read(tmp_path / "missing.jsonl")


def test_duplicates_are_reported_and_learned(read: Read) -> None:
    prepares = read([chat("Hi there", "a b"), chat("x", "y"), chat("hi  there", "A b")])
    assert prepares.duplicates == [("examples[2]", "examples[0]")]
    assert len(prepares.examples) == 3
    assert "1 are duplicates" in "\n".join(prepares.lines())


def test_leaks_are_refused(read: Read) -> None:
    training = read([chat("a", "b", "c", "d"), chat("x", "y")]).examples
    check_no_leak(training, read([chat("a", "other"), chat("y", "x")]).examples)
    for leak in (chat("x", "y"), chat("A", " b"), chat("a", "b", "z", "z")):
        with pytest.raises(ExampleError, match=r"examples\[0\] is in examples\[\d\]"):
            check_no_leak(training, read([leak]).examples)


def test_failed_rollouts_are_no_examples(read: Read) -> None:
    messages = chat("a", "b")["messages"]
    failed = art.Trajectory(
        messages_and_choices=messages, status=art.TrajectoryStatus.FAILED, error="boom"
    )
    good = art.Trajectory(messages_and_choices=messages)
    prepares = read([art.TrajectoryGroup([failed, good])])
    assert [example.where for example in prepares.examples] == ["examples[0] trajectory 1"]


def test_an_answer_that_histories_share_is_learned_once(
    read: Read, smollm2_chat: TemplateFormat
) -> None:
    messages = chat("a", "b", "c", "d")["messages"]
    other: list[Any] = [
        *messages[:2],
        {"role": "user", "content": "e"},
        {"role": "assistant", "content": "f"},
    ]
    trajectory = art.Trajectory(
        messages_and_choices=messages,
        tools=[TOOL],
        additional_histories=[art.History(messages_and_choices=other, tools=[TOOL])],
    )
    assert learned(read([trajectory]), smollm2_chat) == [
        ["b<|im_end|>d<|im_end|>"],
        ["f<|im_end|>"],
    ]


NAMES = st.sampled_from(
    [
        "content",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "id",
        "type",
        "text",
        "weight",
        "reasoning_content",
        "tool_call_id",
        "function_call",
        "refusal",
        "role",
        "parameters",
    ]
)
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
MESSAGE = st.dictionaries(NAMES, ODD, max_size=3).flatmap(
    lambda fields: st.sampled_from(["user", "assistant", "tool", "system", "x"]).map(
        lambda role: {**fields, "role": role}
    )
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
        HealthCheck.large_base_example,
    ],
)
@given(
    st.fixed_dictionaries(
        {"messages": st.lists(MESSAGE, max_size=4) | ODD}, optional={"tools": ODD}
    )
)
def test_whatever_is_written_is_learned_or_named(read: Read, odd: dict[str, Any]) -> None:
    prepares = read([chat("good", "fine"), odd])
    assert len(prepares.examples) + len(prepares.problems) == 2
