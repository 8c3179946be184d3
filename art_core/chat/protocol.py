"""What a chat format is: messages to tokens, and sampled tokens to a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from art_core.trajectories import Message, Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedMessage:
    """The assistant message in a completion's tokens."""

    message: Message
    """``role``, ``content`` (None beside tool calls without text), and where present
    ``reasoning_content`` and ``tool_calls`` (OpenAI's form, ``arguments`` a string)."""
    errors: list[str] = field(default_factory=list[str])
    """What was malformed; the malformed text is in ``content``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of a streamed message; concatenated pieces equal the parsed message."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    """OpenAI's streaming form: ``index``, ``id``, ``type`` and ``function``. A call comes
    whole, once it is known to be well-formed; a malformed one comes as ``content``."""

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.tool_calls)


class StreamParser(Protocol):
    """Parses one completion while it is sampled."""

    @property
    def text(self) -> str:
        """All text decoded so far (special tokens left out, partial UTF-8 held back):
        what stop strings are looked for in."""
        ...

    @property
    def stopped_by(self) -> str | None:
        """The stop string that was found. The message ends before it; what is fed
        afterwards is ignored."""
        ...

    def feed(self, token_ids: Sequence[int]) -> Delta:
        """Take the next sampled tokens; return what became certain."""
        ...

    def finish(self) -> tuple[Delta, ParsedMessage]:
        """Return what was still held back, and the whole message."""
        ...


class ChatFormat(Protocol):
    """The chat convention of one base model, the same for serving and training."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end an assistant turn."""
        ...

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> list[int]:
        """Token ids of the conversation and the opening of the assistant's turn.

        Text in messages and tools is data: it never becomes a special token.

        Raises:
            ChatError: this format can't express something in ``messages``; names it.
        """
        ...

    def bridge(
        self,
        recorded_token_ids: Sequence[int],
        recorded_messages: Sequence[Message],
        new_messages: Sequence[Message],
        tools: Sequence[Tool] | None = None,
        *,
        sampled: int,
    ) -> list[int] | None:
        """Token ids of a prompt that begins with ``recorded_token_ids``.

        ``recorded_token_ids`` are a prompt and what was sampled on it, the last
        ``sampled`` of them; ``recorded_messages`` the same as messages, the
        response last; ``tools`` those of the recorded request. None when the
        format can't continue them (its template rewrites earlier turns, say):
        then the whole conversation is rendered and starts a new history.

        Raises:
            ChatError: this format can't express something in ``new_messages``.
        """
        ...

    def answer(
        self,
        messages: Sequence[Message],
        response: Message,
        tools: Sequence[Tool] | None = None,
    ) -> list[int]:
        """The tokens that a model would have sampled to give ``response`` to ``messages``.

        With the token that ends the turn. Reading them back (`parse`) gives the
        response, but for blanks around its texts.

        Raises:
            ChatError: this format can't express them; names what would be lost.
        """
        ...

    def parse(
        self,
        token_ids: Sequence[int],
        tools: Sequence[Tool] | None = None,
        *,
        call_id_seed: str = "",
    ) -> ParsedMessage:
        """The assistant message in a completion's token ids; never raises.

        Tool-call ids are made from ``call_id_seed`` and the call's place in the
        message: give the completion's id, so that they are unique and the same
        in streamed and whole responses.
        """
        ...

    def stream_parser(
        self,
        tools: Sequence[Tool] | None = None,
        *,
        call_id_seed: str = "",
        stop: Sequence[str] = (),
    ) -> StreamParser:
        """A parser of one completion. ``stop``: strings that end the message; text
        that may be the beginning of one is held back."""
        ...

    def text_parser(self, *, stop: Sequence[str] = ()) -> StreamParser:
        """A parser of sampled text that is no assistant turn: all of it is content."""
        ...

    def answer_grammar(
        self,
        schema: Mapping[str, Any] | None,
        tools: Sequence[Tool] = (),
        *,
        several: bool = True,
    ) -> str:
        """A grammar (`SamplingParams.grammar`) of answers whose content is JSON of
        ``schema``, or that call one of ``tools``, or ``several``.

        ``schema``: None allows no content. Reasoning may come first.

        Raises:
            ChatError: this model's calls or reasoning can't be put into a grammar.
        """
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text (no template, no special tokens)."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, special tokens included: to read, never to re-tokenize."""
        ...
