"""Sampled token ids to an assistant message, whole or while they are sampled."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import cast

from art_core.chat.grammar import CallSyntaxError, Grammar, ToolTypes
from art_core.chat.protocol import Delta, ParsedMessage
from art_core.chat.scanner import Piece, Scanner
from art_core.chat.stops import StopStrings
from art_core.chat.turns import Call
from art_core.chat.vocabulary import Vocabulary
from art_core.trajectories import Message, Tool


class Parser:
    """Parses one completion (`art_core.chat.StreamParser`).

    Ids become marked text, where control tokens can't be confused with text that
    looks like them; the scanner cuts it up; the pieces become deltas, and the
    message is what the deltas add up to.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        grammar: Grammar,
        *,
        stop_token_ids: Set[int],
        tools: Sequence[Tool] | None = None,
        call_id_seed: str = "",
        stop: Sequence[str] = (),
    ) -> None:
        self._vocabulary = vocabulary
        self._stop_token_ids = stop_token_ids
        self._decoder = vocabulary.decoder()
        self._until = StopStrings(stop, vocabulary)
        self._scanner = Scanner(grammar)
        self._message = _Assembly(vocabulary, grammar, ToolTypes(tools), call_id_seed)
        self._text: list[str] = []
        self._ended = False

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def stopped_by(self) -> str | None:
        return self._until.found

    def feed(self, token_ids: Sequence[int]) -> Delta:
        if self._ended:
            return Delta()
        before = list(self._before_stop_token(token_ids))
        marked = self._decoder.feed(before)
        if self._ended:
            marked += self._decoder.finish()
        self._text.append(self._vocabulary.unmark(marked, hide_special=True))
        passed = self._until.feed(marked)
        if self._until.found is not None:
            self._ended = True
        return self._message.add(self._scanner.feed(passed))

    def finish(self) -> tuple[Delta, ParsedMessage]:
        rest = "" if self._ended else self._decoder.finish()
        self._text.append(rest)
        passed = self._until.feed(rest) + self._until.finish()
        self._ended = True
        pieces = [*self._scanner.feed(passed), *self._scanner.finish()]
        delta = self._message.add(pieces, final=True)
        return delta, self._message.parsed()

    def _before_stop_token(self, token_ids: Iterable[int]) -> Iterable[int]:
        for token_id in token_ids:
            if token_id in self._stop_token_ids:
                self._ended = True
                return
            yield token_id


@dataclass(slots=True)
class _Pending:
    """What one feed adds to the message."""

    content: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: list[dict[str, object]] = field(default_factory=list[dict[str, object]])


class _Assembly:
    """The message so far.

    Blank space that templates put around the parts isn't part of them: newlines
    around reasoning, blanks before a call. Content without either is exact.
    """

    def __init__(
        self, vocabulary: Vocabulary, grammar: Grammar, types: ToolTypes, call_id_seed: str
    ) -> None:
        self._vocabulary = vocabulary
        self._grammar = grammar
        self._types = types
        self._seed = call_id_seed
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, object]] = []
        self._errors: list[str] = []
        self._held_blanks = ""  # at the end of the content, in case a call follows
        self._held_newlines = ""  # at the end of the reasoning, in case it ends there
        self._after_reasoning = False
        self._reasoning_begun = False

    def add(self, pieces: Iterable[Piece], *, final: bool = False) -> Delta:
        pending = _Pending()
        for piece in pieces:
            self._add(piece, pending)
        if final and not self._calls and not pending.calls:
            self._content_text("", pending, flush=True)
        self._content += pending.content
        self._reasoning += pending.reasoning
        self._calls += pending.calls
        return Delta(
            content="".join(pending.content),
            reasoning="".join(pending.reasoning),
            tool_calls=pending.calls,
        )

    def parsed(self) -> ParsedMessage:
        content, reasoning = "".join(self._content), "".join(self._reasoning)
        calls = [
            {key: value for key, value in call.items() if key != "index"} for call in self._calls
        ]
        message: dict[str, object] = {"role": "assistant", "content": content}
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls:
            message["content"] = content or None
            message["tool_calls"] = calls
        return ParsedMessage(message=cast("Message", message), errors=list(self._errors))

    def _add(self, piece: Piece, pending: _Pending) -> None:
        match piece.kind:
            case "content":
                self._content_text(self._vocabulary.unmark(piece.text), pending)
            case "reasoning":
                self._reasoning_text(self._vocabulary.unmark(piece.text), pending)
            case "reasoning_open":
                self._reasoning_begun = False
            case "reasoning_close":
                self._held_newlines, self._after_reasoning = "", True
            case "call":
                self._call(piece, pending)
            case "control":
                self._control(piece, pending)
            case "skip":
                pass

    def _content_text(self, text: str, pending: _Pending, *, flush: bool = False) -> None:
        if self._after_reasoning:
            text = text.lstrip("\n")
            self._after_reasoning = not text
        if not (self._content or pending.content) and (self._calls or pending.calls):
            text = text.lstrip()
        text = self._held_blanks + text
        kept = text if flush else text.rstrip()
        self._held_blanks = text[len(kept) :]
        if kept:
            pending.content.append(kept)

    def _reasoning_text(self, text: str, pending: _Pending) -> None:
        if not self._reasoning_begun:
            text = text.lstrip("\n")
            self._reasoning_begun = bool(text)
        text = self._held_newlines + text
        kept = text.rstrip("\n")
        self._held_newlines = text[len(kept) :]
        if kept:
            pending.reasoning.append(kept)

    def _call(self, piece: Piece, pending: _Pending) -> None:
        try:
            calls = self._decode(piece)
        except CallSyntaxError as error:
            where = self._vocabulary.unmark(error.text)
            self._errors.append(
                f"tool call: {error.problem}" + (f": {where!r:.200}" if where else "")
            )
            self._content_text(self._vocabulary.unmark(piece.text), pending)
            return
        self._held_blanks = ""
        for call in calls:
            index = len(self._calls) + len(pending.calls)
            plain = self._vocabulary.unmark
            function = {"name": plain(call.name), "arguments": plain(call.arguments)}
            id_ = plain(call.id) if call.id else _call_id(self._seed, index)
            pending.calls.append(
                {"index": index, "id": id_, "type": "function", "function": function}
            )

    def _decode(self, piece: Piece) -> list[Call]:
        syntax = self._grammar.calls
        if syntax is None:
            raise CallSyntaxError("this model has no tool calls")
        if not piece.closed:
            raise CallSyntaxError("it isn't closed")
        return syntax.decode(piece.opening, piece.body, self._types)

    def _control(self, piece: Piece, pending: _Pending) -> None:
        """A control token where it means nothing: special ones aren't shown."""
        shown = self._vocabulary.unmark(piece.text, hide_special=True)
        if shown and piece.in_reasoning:
            self._reasoning_text(shown, pending)
        elif shown:
            self._content_text(shown, pending)
        else:
            self._errors.append(f"stray control token {self._vocabulary.unmark(piece.text)}")


def _call_id(seed: str, index: int) -> str:
    return "call_" + hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=12).hexdigest()
