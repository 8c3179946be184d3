"""The text completions recorded in one rollout, found by the text that goes on from them."""

from __future__ import annotations

from art_core.chat.protocol import ChatFormat
from art_core.trajectories import Completion


class Texts:
    """Text completions by all that the engine saw and sampled, as text."""

    def __init__(self, chat: ChatFormat) -> None:
        self._chat = chat
        self._recorded: dict[str, tuple[str, Completion]] = {}

    def add(self, completion: Completion) -> None:
        text = self._chat.decode(completion.prompt_token_ids + completion.completion_token_ids)
        self._recorded[completion.id] = (text, completion)

    def discard(self, completion: Completion) -> None:
        self._recorded.pop(completion.id, None)

    def find(self, prompt: str) -> tuple[Completion, str] | None:
        """The longest recorded text that ``prompt`` begins with, and what comes behind it."""
        matching = [each for each in list(self._recorded.values()) if prompt.startswith(each[0])]
        if not matching:
            return None
        text, parent = max(matching, key=lambda each: len(each[0]))
        return parent, prompt[len(text) :]
