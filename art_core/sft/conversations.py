"""A conversation in the tokens that serving would have had, and which of them are trained.

Each assistant turn is taken as if the model had sampled it: behind the prompt that the
gateway would have given (what went before goes on where the chat format can bridge it,
else it's rendered anew), in the tokens of `ChatFormat.answer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from art_core.chat import ChatFormat
from art_core.trajectories import Message, Tool


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One linear run of tokens: a prompt, and answers with what was said in between."""

    token_ids: tuple[int, ...]
    trained: tuple[bool, ...]
    """Whether the token is learned; as long as ``token_ids``. The last one is."""


def token_rows(
    chat: ChatFormat,
    messages: Sequence[Message],
    tools: Sequence[Tool] | None,
    trained: Sequence[bool],
) -> list[TokenRow]:
    """The rows of a conversation: one, or more where a template rewrites earlier turns.

    Args:
        trained: for each message, whether it's an answer to learn.

    Raises:
        ChatError: the chat format can't express it; says what would be lost.
    """
    rows = _Rows()
    last: _Turn | None = None
    for at, message in enumerate(messages):
        if not is_answer(message) or at == 0 or not any(trained[at:]):
            continue
        prompt = None if last is None else last.prompt_of(chat, messages[:at], tools)
        if prompt is None:
            prompt = chat.render(messages[:at], tools)
        answer = chat.answer(messages[:at], message, tools)
        rows.add(prompt, answer, trained[at])
        last = _Turn(at, prompt, answer)
    return rows.finished()


@dataclass(frozen=True, slots=True)
class _Turn:
    """An answer, and the prompt that it was given to."""

    at: int
    prompt: list[int]
    answer: list[int]

    def prompt_of(
        self, chat: ChatFormat, messages: Sequence[Message], tools: Sequence[Tool] | None
    ) -> list[int] | None:
        """The prompt that goes on from this turn; None where it must be rendered."""
        return chat.bridge(
            [*self.prompt, *self.answer],
            messages[: self.at + 1],
            messages[self.at + 1 :],
            tools,
            sampled=len(self.answer),
        )


class _Rows:
    def __init__(self) -> None:
        self._rows: list[tuple[list[int], list[bool]]] = []

    def add(self, prompt: list[int], answer: list[int], trained: bool) -> None:
        """Append to the row that the prompt goes on from, or begin another."""
        if self._rows:
            token_ids, mask = self._rows[-1]
            if prompt[: len(token_ids)] == token_ids:
                mask += [False] * (len(prompt) - len(token_ids)) + [trained] * len(answer)
                token_ids[:] = [*prompt, *answer]
                return
        mask = [False] * len(prompt) + [trained] * len(answer)
        self._rows.append(([*prompt, *answer], mask))

    def finished(self) -> list[TokenRow]:
        return [row for token_ids, mask in self._rows if (row := cut_row(token_ids, mask))]


def cut_row(token_ids: Sequence[int], trained: Sequence[bool]) -> TokenRow | None:
    """The row up to its last trained token; None if there is none."""
    if True not in trained:
        return None
    end = len(trained) - list(reversed(trained)).index(True)
    return TokenRow(tuple(token_ids[:end]), tuple(trained[:end]))


def is_answer(message: Message) -> bool:
    """Whether the assistant says it."""
    return (message.get("role") or message.get("type")) in ("assistant", "ai")
