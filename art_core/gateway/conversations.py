"""The conversations recorded in one rollout, found by the messages that continue them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from art_core.chat.normalise import canonical_key, normalise, normalise_tools
from art_core.errors import ChatError
from art_core.trajectories import Completion, Message, Tool


@dataclass(frozen=True, slots=True)
class Continuation:
    """A recorded conversation, and what a request adds to it."""

    parent: Completion
    new_messages: Sequence[Message]


class Conversations:
    """An index of completions by their conversation: tools, request messages and response.

    Conversations are the same if they mean the same to a model, whatever a client
    changed on the way (see `canonical_key`).
    """

    def __init__(self) -> None:
        self._recorded: dict[bytes, list[Completion]] = {}
        self._continued: set[str] = set()

    def add(self, completion: Completion) -> None:
        self._recorded.setdefault(_key(completion), []).append(completion)

    def discard(self, completion: Completion) -> None:
        """Forget a completion that its client never received."""
        same = self._recorded.get(_key(completion), [])
        self._recorded[_key(completion)] = [each for each in same if each.id != completion.id]

    def find(
        self, messages: Sequence[Message], tools: Sequence[Tool] | None
    ) -> Continuation | None:
        """The longest recorded conversation that ``messages`` go on from.

        Of several that read the same (equal prompts that were answered alike), one
        that hasn't been continued yet, the oldest first.

        Raises:
            ChatError: a message or tool has no meaning to a text model.
        """
        keys = list(_prefix_keys(messages, tools))
        for length in range(len(messages) - 1, 0, -1):
            if messages[length - 1].get("role") != "assistant":
                continue
            same = self._recorded.get(keys[length - 1])
            if same:
                parent = next((each for each in same if not self.was_continued(each)), same[0])
                return Continuation(parent, messages[length:])
        return None

    def continue_(self, completion: Completion) -> None:
        """Note that a request went on from ``completion``: its client has received it."""
        self._continued.add(completion.id)

    def was_continued(self, completion: Completion) -> bool:
        return completion.id in self._continued


def _key(completion: Completion) -> bytes:
    *_, last = _prefix_keys([*completion.messages, completion.response], completion.tools)
    return last


def _prefix_keys(messages: Sequence[Message], tools: Sequence[Tool] | None) -> Iterator[bytes]:
    """A key for each leading part of a conversation: its first message, its first two, …"""
    key = json.dumps(normalise_tools(tools), sort_keys=True).encode()
    for message in messages:
        key = blake2b(_canonical(message, messages).encode(), key=blake2b(key).digest()).digest()
        yield key


def _canonical(message: Message, messages: Sequence[Message]) -> str:
    try:
        return canonical_key(message)
    except ChatError:
        normalise(messages)  # says which message it is
        raise
