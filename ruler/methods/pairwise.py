"""A tournament: two trajectories a question, strengths from who beat whom.

For groups too large or too long for one question. Each pair is asked in both orders
and only an answer that holds in both counts as a win, so a judge that prefers what
it sees first (arXiv 2305.17926) adds nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from pydantic import JsonValue

from art_core.errors import ConfigError
from ruler.answers import (
    AnswerProblem,
    Judgement,
    check_keys,
    object_schema,
    read_object,
    read_text,
)
from ruler.asking import Desk, Question
from ruler.case import Case
from ruler.judges.model import JudgeModel
from ruler.methods.judge import Verdict, spread
from ruler.methods.prompts import messages
from ruler.rubric import DEFAULT_RUBRIC, RubricText, rubric_text
from ruler.sheet import lay_out
from ruler.statistics import bradley_terry
from ruler.tally import Tally
from ruler.together import all_of

_TASK = """\
You compare agents. Two of them were given the same task; decide which did better by the
standard below. What the task is follows from the messages that the agents were given. The
order in which they are shown is random and means nothing."""
_TIE = "tie"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairwise:
    """Scores a group by matches; the score is the chance to beat an average one of the group."""

    model: JudgeModel
    rubric: RubricText = DEFAULT_RUBRIC
    opponents: int = 6
    """Of each trajectory, each met in both orders: ``opponents`` calls per trajectory. In a
    group of at most ``opponents + 1`` everyone meets everyone."""
    max_chars: int = 200_000

    def __post_init__(self) -> None:
        if self.opponents < 2:
            raise ConfigError(f"opponents is {self.opponents}", "At least 2 connect the group.")

    @property
    def name(self) -> str:
        return self.model.name

    async def judge(self, case: Case, desk: Desk) -> Verdict:
        pairs = fixtures(len(case.entries), self.opponents, f"{case.seed} {case.digest}")
        answers = await all_of(
            self._match(first, second, case, desk)
            for pair in pairs
            for first, second in (pair, pair[::-1])
        )
        wins: dict[tuple[int, int], float] = {}
        notes: list[list[str]] = [[] for _ in case.entries]
        changed = 0
        for (a, b), there, back in zip(pairs, answers[::2], answers[1::2], strict=True):
            winner = there.winner if there.winner == back.winner else None
            changed += there.winner != back.winner
            wins[a, b] = 0.5 if winner is None else float(winner == a)
            wins[b, a] = 1 - wins[a, b]
            for one in (a, b):
                notes[one].append(there.explanation)
        strengths = bradley_terry(len(case.entries), wins)
        return Verdict(
            judgements=spread(
                case,
                [
                    Judgement(score=score, explanation=" | ".join(said))
                    for score, said in zip(strengths, notes, strict=True)
                ],
            ),
            metrics={"ruler/order_changed_winner": changed / len(pairs)} if pairs else {},
        )

    async def _match(self, first: int, second: int, case: Case, desk: Desk) -> _Result:
        shown = [case.entries[first], case.entries[second]]
        sheet = lay_out(shown, salt="pairwise", max_chars=self.max_chars)
        case.tally.add(Tally(left_out_chars=sheet.left_out_chars))
        options = (*sheet.ids, _TIE)
        form = (
            'Answer with one JSON object: {"explanation": "<one or two sentences>", "winner": '
            f'"<{sheet.ids[0]}, {sheet.ids[1]} or {_TIE}>"}}.'
        )
        rubric = rubric_text(self.rubric, case.trajectories)
        winner, explanation = await desk.ask(
            self.model,
            Question(
                messages=messages(_TASK, rubric, form, sheet),
                schema=_schema(options),
                read=lambda text: _read_winner(text, options),
                sample=case.sample,
            ),
            case.tally,
        )
        chosen = {sheet.ids[0]: first, sheet.ids[1]: second}.get(winner)
        return _Result(winner=chosen, explanation=explanation)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    winner: int | None
    explanation: str


def fixtures(players: int, opponents: int, seed: str) -> list[tuple[int, int]]:
    """Who meets whom: a connected schedule in which all have about ``opponents`` opponents.

    On a randomly seated round table, each meets the nearest ones on both sides.
    """
    seats = list(range(players))
    random.Random(seed).shuffle(seats)
    if players <= opponents + 1:
        return list(combinations(range(players), 2))
    neighbours = (
        (seats[seat], seats[(seat + step) % players])
        for step in range(1, (opponents + 1) // 2 + 1)
        for seat in range(players)
    )
    return sorted({(min(a, b), max(a, b)) for a, b in neighbours})


def _schema(options: Sequence[str]) -> dict[str, JsonValue]:
    choices: list[JsonValue] = list(options)
    return object_schema(
        {"explanation": {"type": "string"}, "winner": {"type": "string", "enum": choices}}
    )


def _read_winner(text: str, options: Sequence[str]) -> tuple[str, str]:
    answer = read_object(text)
    check_keys(answer, ("explanation", "winner"), "the answer")
    winner = answer["winner"]
    if winner not in options:
        raise AnswerProblem(f"the winner is {winner!r:.100}, not one of {', '.join(options)}")
    return str(winner), read_text(answer["explanation"], "the explanation")
