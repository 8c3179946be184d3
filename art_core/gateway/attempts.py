"""Which earlier attempt does a retry replace?

Client libraries send a request again when it timed out or failed, and say so in
a header. The attempt before it is then abandoned: nobody acts on its answer,
so nothing of it may be trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from art_core.gateway.problems import invalid
from art_core.trajectories import Completion

if TYPE_CHECKING:
    from art_core.gateway.call import Call

RETRY_HEADER = "x-stainless-retry-count"
"""Sent by the client libraries of OpenAI and Anthropic; 0 on the first attempt."""


class Outcome(IntEnum):
    """How an attempt ended; a retry replaces the one that most plainly failed its client."""

    HUNG_UP = 0
    REFUSED = 1
    RUNNING = 2
    ANSWERED = 3


@dataclass(frozen=True, slots=True)
class Attempt:
    """One arrival of a request."""

    retry_count: int
    occurrence: int
    """How often its prompt had come before in the rollout; a retry has that of the first."""
    call: Call


class Attempts:
    """The attempts of one rollout that a retry may still come for, by request body."""

    def __init__(self) -> None:
        self._by_body: dict[bytes, list[Attempt]] = {}

    def add(self, body_key: bytes, attempt: Attempt) -> None:
        self._by_body.setdefault(body_key, []).append(attempt)

    def take_replaced(
        self, body_key: bytes, retry_count: int, acted_on: Callable[[Completion], bool]
    ) -> Attempt | None:
        """Remove and return the attempt that a request is a retry of.

        That is one of the same body that counts one retry less: of several
        (parallel calls with equal bodies), one whose client hung up or was refused,
        else one that still runs, else the one answered last. An answer that was
        ``acted_on`` (a later request continued it) did reach its client.
        """
        attempts = self._by_body.get(body_key, [])
        earlier = [
            each
            for each in reversed(attempts)
            if each.retry_count == retry_count - 1 and not any(map(acted_on, each.call.answer))
        ]
        if not earlier:
            return None
        replaced = min(earlier, key=lambda each: each.call.outcome)
        attempts.remove(replaced)
        return replaced


def retry_count(headers: Mapping[str, str]) -> int:
    """How often the client has sent this request before.

    Raises:
        Problem: the header isn't a number.
    """
    value = headers.get(RETRY_HEADER, "0")
    if not value.isdecimal():
        raise invalid(RETRY_HEADER, f"must be a whole number, got {value!r:.40}")
    return int(value)
