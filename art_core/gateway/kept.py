"""Responses that later requests may go on from by their id."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from art_core.trajectories import Message


class KeptResponses:
    """Conversations by response id: messages and response, without instructions.

    The oldest are forgotten beyond ``limit``.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._conversations: OrderedDict[str, list[Message]] = OrderedDict()

    def keep(self, response_id: str, conversation: Sequence[Message]) -> None:
        self._conversations[response_id] = list(conversation)
        if len(self._conversations) > self._limit:
            self._conversations.popitem(last=False)

    def get(self, response_id: str) -> list[Message] | None:
        return self._conversations.get(response_id)
