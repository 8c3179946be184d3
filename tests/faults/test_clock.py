"""A clock that is set back in the middle of a rollout."""

from __future__ import annotations

from art_core.rollouts.closed import ClosedRollout
from tests.faults.samples import completion


def test_the_last_conversation_is_the_last_whatever_the_clock_says() -> None:
    first = completion("first")
    change = {"prompt_token_ids": [9, 8], "started_at": -3600.0, "finished_at": -3599.0}
    second = completion("second").model_copy(update=change)
    closed = ClosedRollout.of([first, second])
    assert closed.last is not None
    assert closed.histories[closed.last].completion_ids == ["second"]
