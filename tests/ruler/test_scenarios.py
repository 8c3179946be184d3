"""Scenarios: varied by plan, without duplicates, resumable, of a checked form."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from art_core.errors import ConfigError, RunLockedError, ScenarioError
from ruler import JudgeAnswerError, JudgeSetupError, OpenAIServer, load_scenarios, make_scenarios
from ruler.auto.likeness import clusters, likeness
from ruler.auto.slots import DIFFICULTIES, plan
from ruler.auto.store import appending
from tests.ruler.conftest import QUICK
from tests.ruler.fake_judge import FakeJudge


def made_up_words(count: int) -> list[str]:
    letters = random.Random(0)
    return ["".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(count)]


WORDS = made_up_words(2000)


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": f"Does {name}."}}


def ordered(body: dict[str, Any]) -> list[int]:
    system = str(body["messages"][0]["content"])
    return [int(number) for number in re.findall(r"^- task(\d+): ", system, re.M)]


def distinct(number: int, round_number: int = 0) -> dict[str, str]:
    words = random.Random(f"{number} {round_number}").sample(WORDS, 6)
    return {"task": " ".join(words) + "?", "success": f"It says {words[0]}."}


def writes(judge: FakeJudge, draft: Callable[[int], Any] = distinct) -> None:
    """Let the fake answer orders of scenarios."""

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        return {f"task{number}": draft(number) for number in ordered(body)}

    judge.right_answer = answer  # type: ignore[method-assign]


async def make(model: OpenAIServer, **options: Any) -> Any:
    defaults: dict[str, Any] = {"n": 20, "task": "Answer questions.", "cache": False}
    return await make_scenarios(judge=model, patience=QUICK, **(defaults | options))


async def test_as_many_as_asked_for_of_each_difficulty(
    fake_judge: FakeJudge, judge_model: OpenAIServer
) -> None:
    writes(fake_judge)
    made = await make(judge_model, tools=[tool("a"), tool("b"), tool("c")])
    assert len(made) == len({one.id for one in made}) == 20
    assert Counter(one.difficulty for one in made) == dict.fromkeys(range(1, 6), 4)
    used = Counter(name for one in made for name in one.tools)
    assert set(used) == {"a", "b", "c"}
    assert max(used.values()) - min(used.values()) <= 2
    assert len({one.persona for one in made}) == 20
    assert made[3].origin.model_dump() == {
        "source": made[0].origin.source, "judge": judge_model.name,
        "seed": 0, "slot": 3, "round": 0,
    }  # fmt: skip
    assert '"tool": {"name": "a", "description": "Does a."}' in fake_judge.prompt(0)
    assert '{"description": "Answer questions."}' in fake_judge.prompt(0)


def test_a_larger_plan_goes_on_where_a_smaller_one_ends() -> None:
    assert plan(30, ["a", "b"], 5)[:12] == plan(12, ["a", "b"], 5)
    assert plan(12, [], 5) != plan(12, [], 6)
    assert {slot.difficulty for slot in plan(5, [], 0)} == set(DIFFICULTIES)
    assert all(slot.tools == ("only",) for slot in plan(9, ["only"], 0))


async def test_duplicates_are_written_anew(
    fake_judge: FakeJudge, judge_model: OpenAIServer
) -> None:
    asked: Counter[int] = Counter()

    def draft(number: int) -> dict[str, str]:
        asked[number] += 1
        if number % 2 and asked[number] == 1:
            near = distinct(number - 1, 1)
            return near | {"task": near["task"].upper().replace("?", "!")}
        return distinct(number, asked[number])

    writes(fake_judge, draft)
    made = await make(judge_model, n=12)
    assert len(made) == 12
    assert sum(one.origin.round > 0 for one in made) >= 6
    assert all(likeness(a.task, b.task) < 85 for a, b in itertools.combinations(made, 2))
    assert '{"there already": ' in fake_judge.prompt()


async def test_examples_are_not_given_back(
    fake_judge: FakeJudge, judge_model: OpenAIServer
) -> None:
    writes(fake_judge)
    example = distinct(3)["task"]
    made = await make(judge_model, n=6, examples=[example], task=None)
    assert example not in [one.task for one in made]
    assert len(made) == 5
    assert len(fake_judge.requests) == 4


async def test_an_interrupted_call_goes_on(
    fake_judge: FakeJudge, judge_model: OpenAIServer, tmp_path: Path
) -> None:
    path = tmp_path / "scenarios.jsonl"
    writes(fake_judge)
    fake_judge.script, fake_judge.otherwise = ["good", "good"], "401"
    with pytest.raises(JudgeSetupError):
        await make(judge_model, path=path, concurrency=1)
    there = load_scenarios(path)
    assert len(there) == 12
    with path.open("a") as file:
        file.write('{"id": "cut o')
    fake_judge.otherwise = "good"
    made = await make(judge_model, path=path)
    assert len(made) == 20
    assert [one for one in made if one in there] == there
    assert sorted(load_scenarios(path), key=lambda one: one.origin.slot) == made
    requests = len(fake_judge.requests)
    assert await make(judge_model, path=path) == made
    assert await make(judge_model, path=path, n=7) == made[:7]
    assert len(fake_judge.requests) == requests


async def test_a_file_made_from_something_else_is_refused(
    fake_judge: FakeJudge, judge_model: OpenAIServer, tmp_path: Path
) -> None:
    path = tmp_path / "scenarios.jsonl"
    writes(fake_judge)
    await make(judge_model, n=3, path=path)
    for other in ({"task": "Something else."}, {"seed": 1}, {"tools": [tool("a")]}):
        with pytest.raises(ConfigError, match="made from another task, tools, examples or seed"):
            await make(judge_model, n=3, path=path, **other)


async def test_two_processes_dont_write_one_file(
    fake_judge: FakeJudge, judge_model: OpenAIServer, tmp_path: Path
) -> None:
    path = tmp_path / "scenarios.jsonl"
    with appending(path), pytest.raises(RunLockedError):
        await make(judge_model, path=path)


@pytest.mark.parametrize(
    "draft",
    [
        {"task": "", "success": "x"},
        {"task": "x"},
        {"task": "x", "success": "y", "more": 1},
        {"task": 3, "success": "y"},
        {"task": "x" * 5000, "success": "y"},
        "x",
    ],
)
async def test_a_draft_of_the_wrong_form_is_sent_back(
    fake_judge: FakeJudge, judge_model: OpenAIServer, draft: Any
) -> None:
    asked: Counter[int] = Counter()

    def once_wrong(number: int) -> Any:
        asked[number] += 1
        return draft if asked[number] == 1 and number == 0 else distinct(number)

    writes(fake_judge, once_wrong)
    assert len(await make(judge_model, n=3)) == 3
    assert "can't be used" in fake_judge.requests[1]["messages"][-1]["content"]


async def test_a_writer_that_never_gets_it_right(
    fake_judge: FakeJudge, judge_model: OpenAIServer
) -> None:
    fake_judge.otherwise = "words"
    writes(fake_judge)
    with pytest.raises(JudgeAnswerError, match="no usable answer"):
        await make(judge_model, n=3)


async def test_what_cant_be_made_into_scenarios_is_said(judge_model: OpenAIServer) -> None:
    with pytest.raises(ConfigError, match="no task, no tool and no example"):
        await make(judge_model, task=" ")
    with pytest.raises(ConfigError, match="n is 0"):
        await make(judge_model, n=0)
    with pytest.raises(ConfigError, match=r"tools are named \['a', 'a'\]"):
        await make(judge_model, tools=[tool("a"), tool("a")])
    with pytest.raises(ConfigError, match=r"tools are named \[''\]"):
        await make(judge_model, tools=[{"type": "function"}])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "line 2 is not a scenario"),
        ('{"id": "x"}', "line 2 is not a scenario: task Field required"),
        ("same", "line 2 repeats scenario"),
        ("edited", "that of this task is"),
    ],
)
async def test_a_damaged_file_is_named_by_line(
    fake_judge: FakeJudge, judge_model: OpenAIServer, tmp_path: Path, line: str, message: str
) -> None:
    path = tmp_path / "scenarios.jsonl"
    writes(fake_judge)
    await make(judge_model, n=1, path=path)
    good = path.read_text()
    edited = json.dumps(json.loads(good) | {"task": "another"}) + "\n"
    path.write_text(good + {"same": good, "edited": edited}.get(line, line + "\n"))
    with pytest.raises(ScenarioError, match=message):
        load_scenarios(path)


def test_related_tasks_are_one_cluster() -> None:
    texts = [
        "book a table for two",
        "cancel my order 12",
        "book a table for three",
        "12 order my cancel!",
    ]
    assert sorted(map(sorted, clusters(texts))) == [[0, 2], [1, 3]]
