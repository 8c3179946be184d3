"""What the agent is rewarded for."""

from __future__ import annotations

import pytest

from art_core.demo.agent import Finding
from art_core.demo.grading import grade, named_function, reciprocal_rank
from art_core.demo.scenarios import Scenario

GCD = Scenario("What divides both?", "math.gcd")


@pytest.mark.parametrize(
    ("pages", "rank"),
    [(["math.gcd", "x.y"], 1.0), (["x.y", "math.gcd"], 0.5), (["math.gcd2"], 0.0), ([], 0.0)],
)
def test_reciprocal_rank(pages: list[str], rank: float) -> None:
    assert reciprocal_rank(pages, "math.gcd") == rank


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ("math.gcd", "math.gcd"),
        ("The function is `math.gcd()`.", "math.gcd"),
        ("math.gcd or math.lcm", "math.gcd"),
        ("I think os.path.join does.", "os.path.join"),
        ("gcd", None),
        ("That is it. Good luck", None),
        ("math.gcdx", "math.gcdx"),
        ("", None),
    ],
)
def test_named_function(answer: str, name: str | None) -> None:
    assert named_function(answer) == name


@pytest.mark.parametrize(
    ("pages", "answer", "reward"),
    [
        (["math.gcd"], "math.gcd", 1.0),
        (["math.lcm", "math.gcd"], "math.gcd", 0.75),
        (["math.gcd"], "math.lcm", 0.5),
        (["math.gcd", "math.lcm"], "math.lcm", 0.75),
        (["math.lcm"], "math.lcm", 0.25),
        ([], "math.gcd", 0.25),
        ([], "no idea", 0.0),
    ],
)
def test_search_and_answer_count_half_each_and_half_of_the_answer_is_reading(
    pages: list[str], answer: str, reward: float
) -> None:
    assert grade(Finding("query", pages, answer), GCD).reward == reward
