"""Each trajectory on its own, by named criteria with weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from art_core.errors import ConfigError
from art_core.trajectories import Trajectory
from ruler.answers import Judgement, read_scores, scores_schema
from ruler.asking import Desk, Question
from ruler.case import Case, Entry
from ruler.judges.model import JudgeModel
from ruler.methods.judge import Verdict, spread
from ruler.methods.prompts import messages, score_form
from ruler.rubric import Criterion
from ruler.sheet import lay_out
from ruler.tally import Tally
from ruler.together import all_of

_TASK = """\
You grade an agent. Give what it did a score from 0 to 1 under each criterion of the standard
below, on its own merits. What its task was follows from the messages that it was given."""


Criteria = Sequence[Criterion] | Callable[[Sequence[Trajectory]], Sequence[Criterion]]
"""Criteria, or a function that makes them from the trajectories of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absolute:
    """Scores each trajectory in a call of its own; the score is the weighted mean."""

    model: JudgeModel
    criteria: Criteria
    max_chars: int = 200_000

    def __post_init__(self) -> None:
        if not callable(self.criteria):
            _check(self.criteria)

    @property
    def name(self) -> str:
        return self.model.name

    async def judge(self, case: Case, desk: Desk) -> Verdict:
        graded = await all_of(self._grade(entry, case, desk) for entry in case.entries)
        return Verdict(judgements=spread(case, graded))

    async def _grade(self, entry: Entry, case: Case, desk: Desk) -> Judgement:
        criteria = self.criteria
        if callable(criteria):
            criteria = _check(criteria(case.trajectories))
        names = [criterion.name for criterion in criteria]
        sheet = lay_out([entry], salt="absolute", max_chars=self.max_chars)
        case.tally.add(Tally(left_out_chars=sheet.left_out_chars))
        rubric = "\n".join(f"- {one.name}: {one.description}" for one in criteria)
        scores = await desk.ask(
            self.model,
            Question(
                messages=messages(_TASK, rubric, score_form(names), sheet),
                schema=scores_schema(names),
                read=lambda text: read_scores(text, names),
                sample=case.sample,
            ),
            case.tally,
        )
        total = sum(criterion.weight for criterion in criteria)
        return Judgement(
            score=sum(one.weight * scores[one.name].score for one in criteria) / total,
            explanation=" ".join(f"{name}: {scores[name].explanation}" for name in names),
            criteria={name: scores[name].score for name in names},
        )


def _check(criteria: Sequence[Criterion]) -> Sequence[Criterion]:
    names = [criterion.name for criterion in criteria]
    if not names or len(set(names)) < len(names):
        raise ConfigError(
            f"criteria are named {names!r}", "Give at least one, and each a name of its own."
        )
    return criteria
