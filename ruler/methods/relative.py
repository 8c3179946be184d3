"""All trajectories of a group in one question, scored against each other.

Comparing is easier than grading, and group-relative training only needs the
comparison. Position bias (arXiv 2305.17926) is spread evenly by the shuffle.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from ruler.answers import read_scores, scores_schema
from ruler.asking import Desk, Question
from ruler.case import Case
from ruler.judges.model import JudgeModel
from ruler.methods.judge import Verdict, spread
from ruler.methods.prompts import messages, score_form
from ruler.rubric import DEFAULT_RUBRIC, RubricText, rubric_text
from ruler.sheet import lay_out
from ruler.tally import Tally

_TASK = """\
You grade agents. Several of them were given the same task; compare what they did with each
other and give each a score from 0 (worst) to 1 (best) by the standard below. What the task
is follows from the messages that the agents were given. The order in which they are shown
is random and means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """Scores a group in one call."""

    model: JudgeModel
    rubric: RubricText = DEFAULT_RUBRIC
    max_chars: int = 200_000
    """Of the recordings in one question; longer ones are shortened (see `ruler.eliding`)."""

    @property
    def name(self) -> str:
        return self.model.name

    async def judge(self, case: Case, desk: Desk) -> Verdict:
        order = list(range(len(case.entries)))
        random.Random(f"{case.seed} {case.digest}").shuffle(order)
        shown = [case.entries[index] for index in order]
        sheet = lay_out(shown, salt=f"relative {case.seed}", max_chars=self.max_chars)
        case.tally.add(Tally(left_out_chars=sheet.left_out_chars))
        rubric = rubric_text(self.rubric, case.trajectories)
        scores = await desk.ask(
            self.model,
            Question(
                messages=messages(_TASK, rubric, score_form(sheet.ids), sheet),
                schema=scores_schema(sheet.ids),
                read=lambda text: read_scores(text, sheet.ids),
                sample=case.sample,
            ),
            case.tally,
        )
        by_entry = dict(zip(order, sheet.ids, strict=True))
        return Verdict(
            judgements=spread(
                case,
                [
                    replace(scores[by_entry[index]], place=order.index(index))
                    for index in range(len(case.entries))
                ],
            )
        )
