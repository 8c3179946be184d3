"""What the records of a rollout that has ended come to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from art_core.rollouts.preflight_report import CallCheck
from art_core.trajectories import Completion, History, build_histories


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedRollout:
    """A rollout's histories and calls.

    A backend whose records stay elsewhere gives histories without tokens: they have
    ``completion_ids`` and ``sampled_elsewhere``.
    """

    histories: list[History]
    last: int | None
    """Index of the history with the last completion; None: there is no history."""
    calls: list[CallCheck]
    """All calls, those that are never trained on too."""

    @classmethod
    def of(cls, records: Iterable[Completion]) -> Self:
        """From all records of one rollout, in the order in which they were made."""
        records = list(records)
        histories = build_histories(records)
        return cls(
            histories=histories,
            last=_index_of_last(records, histories),
            calls=[
                CallCheck(
                    status=record.status.value,
                    prompt_tokens=len(record.prompt_token_ids),
                    sampled_tokens=len(record.completion_token_ids),
                    tags=record.tags,
                    parse_errors=record.parse_errors,
                )
                for record in records
            ],
        )


def _index_of_last(records: list[Completion], histories: list[History]) -> int | None:
    # By their order, not their times: the clock may have been set back meanwhile.
    usable = [record.id for record in records if record.may_be_trained]
    if not usable:
        return None
    return next(i for i, history in enumerate(histories) if usable[-1] in history.completion_ids)
