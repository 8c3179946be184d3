"""Reading a judge's answer: exactly what was asked for, or a reason why not.

Nothing is completed, rounded, clipped or guessed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn, cast

from pydantic import JsonValue

_LONGEST_ANSWER = 400_000
_LONGEST_EXPLANATION = 2_000


class AnswerProblem(Exception):
    """Why an answer can't be used, in words that the judge is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a judge says of one trajectory."""

    score: float
    """In [0, 1]."""
    explanation: str = ""
    criteria: dict[str, float] = field(default_factory=dict[str, float])
    """Score by criterion, where there are several."""
    place: int | None = None
    """Where it was shown, counted from 0, where several were shown together."""


def read_object(text: str) -> dict[str, JsonValue]:
    """The one JSON object in ``text``: from its first ``{`` to its last ``}``.

    Prose or a code fence around it is allowed, a reasoning block before it is
    skipped; two objects, repeated keys, NaN and infinities are not allowed.

    Raises:
        AnswerProblem: there is no such object.
    """
    if len(text) > _LONGEST_ANSWER:
        raise AnswerProblem(f"the answer is longer than {_LONGEST_ANSWER} characters")
    said = text.rpartition("</think>")[2]
    start, end = said.find("{"), said.rfind("}")
    if start < 0 or end < start:
        raise AnswerProblem("there is no JSON object in the answer")
    try:
        value: JsonValue = json.loads(
            said[start : end + 1],
            object_pairs_hook=_without_repeats,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError) as error:
        raise AnswerProblem(f"the answer is not one valid JSON object ({error})") from error
    return cast("dict[str, JsonValue]", value)


def _without_repeats(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {}
    for key, value in pairs:
        if key in found:
            raise AnswerProblem(f"the key {key[:100]!r} is there twice")
        found[key] = value
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise AnswerProblem(f"{name} is not a number in [0, 1]")


def read_scores(text: str, names: Sequence[str]) -> dict[str, Judgement]:
    """Score and explanation of each of ``names``, matched by key, none missing, none more.

    Raises:
        AnswerProblem: the answer isn't exactly that.
    """
    answer = read_object(text)
    check_keys(answer, names, "the answer")
    return {name: _read_judgement(answer[name], name) for name in names}


def check_keys(value: dict[str, JsonValue], names: Sequence[str], what: str) -> None:
    """Raise `AnswerProblem` unless ``value`` has exactly the keys ``names``."""
    if missing := [name for name in names if name not in value]:
        raise AnswerProblem(f"{what} lacks {_listed(missing)}")
    if extra := [key for key in value if key not in names]:
        raise AnswerProblem(f"{what} has {_listed(extra)}, which nobody asked about")


def _listed(keys: Sequence[str]) -> str:
    shown = ", ".join(repr(key[:100]) for key in keys[:10])
    return shown if len(keys) <= 10 else f"{shown} and {len(keys) - 10} more"


def _read_judgement(value: JsonValue, name: str) -> Judgement:
    if not isinstance(value, dict):
        raise AnswerProblem(f"the value of {name!r} is not an object with explanation and score")
    check_keys(value, ("explanation", "score"), f"the value of {name!r}")
    return Judgement(
        score=_read_score(value["score"], name),
        explanation=read_text(value["explanation"], f"the explanation of {name!r}"),
    )


def _read_score(value: JsonValue, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AnswerProblem(f"the score of {name!r} is {value!r:.100}, not a number")
    if not 0 <= value <= 1:  # NaN too
        raise AnswerProblem(f"the score of {name!r} is {value!r:.100}, not in [0, 1]")
    return float(value)


def read_text(value: JsonValue, what: str) -> str:
    """A text that can be stored as UTF-8, of reasonable length.

    Raises:
        AnswerProblem: it isn't a text.
    """
    if not isinstance(value, str):
        raise AnswerProblem(f"{what} is not a text")
    clean = value.encode("utf-8", "replace").decode()
    if len(clean) > _LONGEST_EXPLANATION:
        clean = clean[:_LONGEST_EXPLANATION] + " …"
    return clean


def scores_schema(names: Sequence[str]) -> dict[str, JsonValue]:
    """The JSON schema of an answer that `read_scores` reads.

    Ranges are left to `read_scores`: not every provider's schemas have them.
    """
    judgement = object_schema({"explanation": {"type": "string"}, "score": {"type": "number"}})
    return object_schema(dict.fromkeys(names, judgement))


def object_schema(properties: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The schema of an object with exactly these keys, in the subset that providers agree on."""
    return {
        "type": "object",
        "properties": properties,
        "required": list[JsonValue](properties),
        "additionalProperties": False,
    }
