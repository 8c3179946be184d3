# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Reads a history's tokens: the text of each, and whose message it belongs to."""

from __future__ import annotations

from typing import Self

from art_core.chat import ChatFormat, chat_format_for
from art_core.errors import ChatError, ConfigError, MissingExtraError
from art_core.trajectories import History, as_message
from art_core.weights import resolve


class TokenReader:
    """Knows a base model's tokenizer and chat format."""

    def __init__(self, chat: ChatFormat) -> None:
        self._chat = chat

    @classmethod
    def for_model(cls, base_model: str | None) -> Self:
        """Find the base model, fetching it if this machine doesn't have it, and its tokenizer.

        Raises:
            ConfigError: the run has no base model.
            MissingExtraError: transformers isn't installed.
            UnknownModelError, WeightsError, ChatError: see `resolve` and `chat_format_for`.
        """
        if base_model is None:
            raise ConfigError("this run has no base model, so no tokens", "Leave out --tokens.")
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise MissingExtraError(
                "reading tokens needs transformers", 'Install it: pip install "art-core[train]".'
            ) from error
        files = resolve(base_model)
        return cls(
            chat_format_for(AutoTokenizer.from_pretrained(files.path, local_files_only=True))
        )

    def texts(self, history: History) -> list[str]:
        """The text of each token; part of a character shows as ``�``."""
        return [self._chat.decode([token_id]) for token_id in history.token_ids]

    def roles(self, history: History) -> list[str]:
        """The role that each token belongs to.

        A sampled token is the assistant's. For the others, a message ends where its
        conversation, rendered up to and with it, parts from the recorded tokens; an
        observed token beyond what can be told so is ``context``.
        """
        messages = [as_message(item) for item in history.messages_and_choices]
        roles = ["context"] * len(history.token_ids)
        start = 0
        for count in range(1, len(messages) + 1):
            end = self._common_prefix(history, count)
            roles[start:end] = [str(messages[count - 1].get("role"))] * max(0, end - start)
            start = max(start, end)
        return [
            "assistant" if logprob is not None else role
            for role, logprob in zip(roles, history.logprobs, strict=True)
        ]

    def _common_prefix(self, history: History, count: int) -> int:
        """How many tokens the first ``count`` messages, rendered, share with the history."""
        messages = [as_message(item) for item in history.messages_and_choices[:count]]
        try:
            rendered = self._chat.render(messages, history.tools)
        except ChatError:  # some templates refuse a conversation that ends there
            return 0
        shared = 0
        for ours, recorded in zip(rendered, history.token_ids, strict=False):
            if ours != recorded:
                break
            shared += 1
        return shared
