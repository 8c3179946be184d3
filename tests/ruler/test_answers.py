"""Reading answers: any text is either read as asked for or refused with a reason."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ruler.answers import AnswerProblem, read_object, read_scores

json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@settings(deadline=None)
@given(st.text() | json_values.map(json.dumps) | st.text(alphabet='{}[]":,\\u0d8 1eN'))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(AnswerProblem):
        assert isinstance(read_object(text), dict)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), json_values, max_size=3), st.text(alphabet="ab `\n"))
def test_an_object_is_found_among_prose(value: dict[str, object], prose: str) -> None:
    text = json.dumps(value)
    if "NaN" in text or "Infinity" in text:
        return
    assert read_object(f"{prose}{text}{prose}") == json.loads(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON object"),
        ("}{", "no JSON object"),
        ('{"a": {"explanation": "", "score": 0.5}, "a": 1}', "'a' is there twice"),
        ('{"a": {"explanation": "", "score": 0.5, "score": 0.6}}', "'score' is there twice"),
        ('{"a": {"explanation": "", "score": NaN}}', "NaN is not a number"),
        ('{"a": {"explanation": "", "score": -Infinity}}', "-Infinity is not a number"),
        ('{"a": {"explanation": "", "score": 1e400}}', "inf, not in"),
        ('{"a": {"explanation": "", "score": 1.0000001}}', "not in"),
        ('{"a": {"explanation": "", "score": null}}', "None, not a number"),
        ('{"a": {"explanation": 1, "score": 1}}', "explanation of 'a' is not a text"),
        ('{"a": {"score": 1}}', "lacks 'explanation'"),
        ('{"b": {"explanation": "", "score": 1}}', "the answer lacks 'a'"),
        ('{"a": {"explanation": "", "score": ' + "9" * 5000 + "}}", "not one valid JSON object"),
        ("{" * 100_000 + "}" * 100_000, "not one valid JSON object"),
        ("{" + "x" * 500_000 + "}", "longer than"),
    ],
)
def test_what_is_refused_says_why(text: str, reason: str) -> None:
    with pytest.raises(AnswerProblem, match=reason):
        read_scores(text, ["a"])


def test_an_explanation_can_always_be_stored() -> None:
    (one,) = read_scores(
        '{"a": {"explanation": "\\ud800 ' + "x" * 5000 + '", "score": 1}}', ["a"]
    ).values()
    assert one.score == 1.0
    assert one.explanation.encode()
    assert len(one.explanation) == 2002
    assert one.explanation.startswith("? ")
