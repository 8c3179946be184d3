"""What the demo's agent is rewarded for, each part reported apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from art_core.demo.agent import Finding
from art_core.demo.scenarios import Scenario

_CODE_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")


@dataclass(frozen=True, slots=True)
class Grade:
    """How well the agent searched, and whether it answered rightly."""

    retrieval: float
    """Reciprocal rank of the right page among those found; 0 when it isn't among them."""
    correct: bool
    grounded: bool
    """Whether the answer names one of the pages found, be it the right one or not."""

    @property
    def reward(self) -> float:
        """Half for the search, half for the answer; of the latter, half for an answer that
        was read in the results rather than made up."""
        return self.retrieval / 2 + self.correct / 4 + self.grounded / 4


def grade(finding: Finding, scenario: Scenario) -> Grade:
    named = named_function(finding.answer)
    return Grade(
        retrieval=reciprocal_rank(finding.pages, scenario.function),
        correct=named == scenario.function,
        grounded=named in finding.pages,
    )


def reciprocal_rank(pages: Sequence[str], wanted: str) -> float:
    """1 for the first page, 1/2 for the second, …; 0 if it isn't there."""
    return 1 / (pages.index(wanted) + 1) if wanted in pages else 0.0


def named_function(answer: str) -> str | None:
    """The first ``module.function`` in an answer, whatever stands around it."""
    match = _CODE_NAME.search(answer)
    return match.group() if match else None
