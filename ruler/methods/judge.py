"""What a judge is: a group's trajectories in, a score for each out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from art_core.errors import BudgetSpentError, JudgeError, JudgeSetupError
from ruler.answers import Judgement
from ruler.asking import Desk
from ruler.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge says of a group."""

    judgements: tuple[Judgement, ...]
    """One for each of the case's trajectories, in their order."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """About the judging itself."""


@runtime_checkable
class Judge(Protocol):
    """A way of scoring: a model with a method, a function, a panel of judges."""

    @property
    def name(self) -> str:
        """To show."""
        ...

    async def judge(self, case: Case, desk: Desk) -> Verdict:
        """Score each trajectory of the case, or raise; nothing in between.

        Raises:
            JudgeError: there are no usable scores.
        """
        ...


def stops_the_run(error: BaseException) -> bool:
    """Whether an error is more than one group left unscored: it would come again, or is a bug."""
    return not isinstance(error, JudgeError) or isinstance(
        error, JudgeSetupError | BudgetSpentError
    )


def spread(case: Case, by_entry: Sequence[Judgement]) -> tuple[Judgement, ...]:
    """Judgements of a case's entries given to all the trajectories that read like them."""
    found: dict[int, Judgement] = {}
    for entry, judgement in zip(case.entries, by_entry, strict=True):
        found |= dict.fromkeys(entry.positions, judgement)
    return tuple(found[position] for position in range(len(case.trajectories)))
