"""What a judge is shown: everything once, nothing silently cut."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from art_core.trajectories import History, Message, Trajectory, TrajectoryStatus
from ruler.case import Case
from ruler.eliding import share_out, shorten
from ruler.messages import conversations
from ruler.sheet import Sheet, lay_out
from tests.ruler.groups import TASK, trajectory

TOOL = {
    "type": "function",
    "function": {"name": "search", "description": "Finds.", "parameters": {"type": "object"}},
}


def sheet_of(*trajectories: Trajectory, max_chars: int = 100_000) -> Sheet:
    return lay_out(Case.of(trajectories).entries, salt="s", max_chars=max_chars)


def blocks(sheet: Sheet) -> dict[str, list[str]]:
    found = re.findall(
        rf"^=== {sheet.nonce} begin (.*?)\n(.*?)\n?=== {sheet.nonce} end$", sheet.text, re.M | re.S
    )
    return {title: body.splitlines() for title, body in found}


def says(content: str) -> Message:
    return {"role": "assistant", "content": content}


def call(number: str) -> Message:
    function: dict[str, Any] = {"name": "search", "arguments": '{"q": "x"}'}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
    }


def result(number: str, content: str) -> Message:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": content}


def built(*messages: Message, **fields: Any) -> Trajectory:
    return Trajectory(messages_and_choices=[*TASK, *messages], **fields)


def test_shared_leading_messages_are_shown_once() -> None:
    sheet = sheet_of(trajectory("Paris"), trajectory("Lyon"), trajectory("Nice"))
    assert sheet.text.count("capital of France") == 1
    shown = blocks(sheet)
    assert [json.loads(line) for line in shown.pop("context shared by all trajectories")] == TASK
    contents = {json.loads(line)["content"] for lines in shown.values() for line in lines}
    assert contents == {"Paris", "Lyon", "Nice"}


def test_a_strict_prefix_of_another_is_shown_with_what_it_did() -> None:
    short = built(says("I stop here"))
    long = built(says("I stop here"), {"role": "user", "content": "go on"}, says("fine"))
    shown = blocks(sheet_of(short, long))
    shown.pop("context shared by all trajectories")
    assert sorted(len(lines) for lines in shown.values()) == [1, 3]
    assert all("I stop here" in lines[0] for lines in shown.values())


def test_a_trajectory_in_which_nothing_was_done_says_so() -> None:
    sheet = sheet_of(built(), trajectory("Paris"))
    assert f"--- {sheet.nonce} nothing: this agent did nothing" in sheet.text


def test_an_agent_cut_off_by_its_limits_is_marked() -> None:
    sheet = sheet_of(trajectory("Paris", status=TrajectoryStatus.TRUNCATED), trajectory("Lyon"))
    marked = [
        title for title in blocks(sheet) if title.endswith("(cut off by a limit of the agent)")
    ]
    assert len(marked) == 1


def test_random_call_ids_dont_tell_trajectories_apart() -> None:
    one, other = (built(call(i), result(i, "found"), says("done")) for i in ("a1", "b2"))
    assert len(Case.of([one, other]).entries) == 1
    text = sheet_of(one).text
    assert '"tool_calls": [{"call": 1, "name": "search"' in text
    assert '"result_of_call": 1' in text


def test_parallel_calls_keep_their_results_apart() -> None:
    swapped = [
        built(call("a"), call("b"), result(first, "red"), result(second, "blue"))
        for first, second in ("ab", "ba")
    ]
    assert len(Case.of(swapped).entries) == 2


def test_tools_are_shown_once_where_all_have_the_same() -> None:
    sheet = sheet_of(trajectory("a", tools=[TOOL]), trajectory("b", tools=[TOOL]))
    assert sheet.text.count('"description": "Finds."') == 1
    mixed = sheet_of(trajectory("a", tools=[TOOL]), trajectory("b"))
    shown = [lines for lines in blocks(mixed).values() if '"role": "tools"' in lines[0]]
    assert len(shown) == 1


def test_every_history_of_a_trajectory_is_shown() -> None:
    helper = History(messages_and_choices=[{"role": "user", "content": "help"}, says("helped")])
    branch = History(messages_and_choices=[*TASK, says("first thought"), says("branch")])
    one = built(says("first thought"), says("main"), additional_histories=[helper, branch])
    text = sheet_of(one, trajectory("other")).text
    assert text.count("capital of France") == 1
    for said in ("main", "helped", "branch"):
        assert text.count(f'"{said}"') == 1
    assert "conversation 1 of 3, after the shared context" in text
    assert "conversation 2 of 3\n" in text
    assert "conversation 3 of 3, after the same 3 messages as an earlier one" in text


def test_recorded_histories_that_repeat_the_conversation_are_left_out() -> None:
    start = History(messages_and_choices=[*TASK, says("a")])
    whole = History(messages_and_choices=[*TASK, says("a"), says("b")])
    one = Trajectory(messages_and_choices=[*TASK, says("a")], histories=[start, whole])
    (only,) = conversations(one)
    assert only.messages[-1]["content"] == "b"


def test_images_are_named_but_not_shown() -> None:
    picture: dict[str, Any] = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + "A" * 5000},
    }
    message: Message = {"role": "user", "content": [{"type": "text", "text": "look"}, picture]}
    text = sheet_of(Trajectory(messages_and_choices=[message, says("nice")])).text
    assert '["look", {"type": "image_url", "not_shown": "5069 characters"}]' in text
    assert "AAAA" not in text


def test_fields_that_are_not_shown_are_named() -> None:
    message: Message = {
        "role": "assistant",
        "content": "x",
        "audio": {"id": "a"},
        "annotations": [],
    }
    assert '"fields_not_shown": ["audio"]' in sheet_of(built(message)).text


def test_a_long_text_loses_its_middle_and_says_how_much() -> None:
    text = "B" + "x" * 50_000 + "E"
    sheet = sheet_of(trajectory(text), trajectory("short"), max_chars=5_000)
    cut = re.search(rf'"B(x+) \[\[{sheet.nonce}: (\d+) characters left out\]\] (x+)E"', sheet.text)
    assert cut is not None
    assert len(cut[1]) + int(cut[2]) + len(cut[3]) == 50_000
    assert len(sheet.text) < 5_600
    assert sheet.left_out_chars > 45_000
    assert '"short"' in sheet.text


def test_many_messages_lose_the_middle_ones() -> None:
    turns = [says(f"step {i} " + "x" * 100) for i in range(1000)]
    sheet = sheet_of(built(*turns), max_chars=4_000)
    assert "step 0 " in sheet.text
    assert "step 999 " in sheet.text
    assert "step 500 " not in sheet.text
    assert re.search(rf"\[\[{sheet.nonce}: 9\d\d messages, \d+ characters left out\]\]", sheet.text)
    assert len(sheet.text) < 4_600


def test_short_trajectories_leave_their_room_to_long_ones() -> None:
    assert share_out([10, 1000, 30], 240) == [10, 200, 30]
    assert share_out([100, 100], 60) == [30, 30]
    assert share_out([5, 6], 100) == [5, 6]


texts = st.lists(st.tuples(st.text(max_size=5), st.integers(0, 2000)), max_size=30)


@settings(max_examples=60, deadline=None)
@given(texts, st.integers(300, 20_000))
def test_shortened_messages_fit_and_count_what_is_missing(
    texts: list[tuple[str, int]], room: int
) -> None:
    seen = [says(text * times) for text, times in texts]
    full = sum(len(line) + 1 for line in shorten(seen, 10**9, "m")[0])
    lines, left_out = shorten(seen, room, "m")
    length = sum(len(line) + 1 for line in lines)
    assert left_out == max(0, full - length)
    if full <= room:
        assert left_out == 0
    else:
        assert length <= room + 2_500
