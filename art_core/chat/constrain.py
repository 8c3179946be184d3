"""Grammars of answers that must be JSON, or must call a tool: what sampling is held to.

In the Lark dialect of llguidance. How a model writes a call is taken from a call that
its template writes; what it may think first is free.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import regex

from art_core.chat.dialects import REASONING_MARKERS
from art_core.chat.grammar import Grammar
from art_core.chat.one_of import without_one_of
from art_core.chat.scanner import Piece, Scanner
from art_core.chat.syntaxes.literal import Literal
from art_core.chat.turns import Call, Turn
from art_core.chat.vocabulary import Vocabulary
from art_core.errors import ChatError
from art_core.trajectories import Tool

Write = Callable[[Sequence[Turn], Sequence[Tool]], str]
"""The marked text of a conversation, up to the opening of the assistant's turn."""

_USER = Turn(role="user", text="qxuzv")
_ARGUMENTS = regex.compile(r'\{\s*"qxkzv"\s*:\s*"qxvzv"\s*\}')
_IDS = ("functions.qx:0", "qxcall001")
_JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""As `json.dumps` writes it: a model can't lose itself in blanks."""


@dataclass(frozen=True, slots=True)
class _Example:
    """How calls are written, as marked text."""

    lead: str
    """Before the first."""
    before: str
    """Before the arguments."""
    behind: str
    """Behind the arguments."""
    between: str | None
    """Between two calls; None where they aren't written one by one."""


class AnswerGrammars:
    """Makes grammars for the answers of one model."""

    def __init__(self, vocabulary: Vocabulary, grammar: Grammar, write: Write) -> None:
        self._vocabulary = vocabulary
        self._grammar = grammar
        self._write = write

    def grammar(
        self, schema: Mapping[str, Any] | None, tools: Sequence[Tool], *, several: bool
    ) -> str:
        """A grammar of answers whose content is JSON of ``schema``, or that call ``tools``.

        ``schema``: None allows no content. ``several``: more than one call is allowed.

        Raises:
            ChatError: this model's calls or reasoning can't be put into a grammar, or a
                schema's ``oneOf`` can't.
        """
        answers: list[str] = []
        rules: list[str] = []
        if schema is not None:
            answers.append("content")
            rules.append(f"content: {json_grammar(schema)}")
        if tools:
            answers.append("calls")
            rules += self._calls(tools, several)
        thought, thinking = self._thinking()
        start = f"start: {thought}({' | '.join(answers)})"
        return "\n".join([start, *rules, *thinking])

    def _calls(self, tools: Sequence[Tool], several: bool) -> Iterator[str]:
        examples = [self._example(str(_function(tool)["name"]), (tool,)) for tool in tools]
        lead, between = examples[0].lead, examples[0].between
        calls = " | ".join(f"call_{index}" for index in range(len(tools)))
        more = ""
        if several and between is not None:
            more = f"({self._literal(between)} call)*"
        yield f"calls: {self._literal(lead)} call {more}"
        yield f"call: {calls}"
        for index, (tool, example) in enumerate(zip(tools, examples, strict=True)):
            arguments = json_grammar(_function(tool).get("parameters") or {"type": "object"})
            before, behind = self._literal(example.before), self._literal(example.behind)
            yield f"call_{index}: {before} {arguments} {behind}"

    def _example(self, name: str, tools: Sequence[Tool]) -> _Example:
        for call_id in _IDS:
            call = Call(name=name, arguments='{"qxkzv": "qxvzv"}', id=call_id)
            pieces = self._written((call,), tools)
            places = [place for place, piece in enumerate(pieces) if piece.kind == "call"]
            if places:
                return self._taken_apart(pieces[: places[0]], pieces[places[0]].text, call, tools)
        raise self._unforceable(name)

    def _taken_apart(
        self, leading: Sequence[Piece], text: str, call: Call, tools: Sequence[Tool]
    ) -> _Example:
        arguments = _ARGUMENTS.search(text)
        if arguments is None or (call.id or "") in text:
            raise self._unforceable(call.name)
        lead = "".join(piece.text for piece in leading if piece.kind in ("content", "skip"))
        return _Example(
            lead, text[: arguments.start()], text[arguments.end() :], self._between(call, tools)
        )

    def _between(self, call: Call, tools: Sequence[Tool]) -> str | None:
        pieces = self._written((call, call), tools)
        places = [place for place, piece in enumerate(pieces) if piece.kind == "call"]
        if len(places) != 2:
            return None
        return "".join(piece.text for piece in pieces[places[0] + 1 : places[1]])

    def _written(self, calls: tuple[Call, ...], tools: Sequence[Tool]) -> list[Piece]:
        """The pieces of an assistant turn with these calls, as the template writes it."""
        results = [
            Turn(role="tool", text="qxrzv", name=call.name, call_id=call.id) for call in calls
        ]
        turns = [_USER, Turn(role="assistant", calls=calls), *results]
        try:
            prompt = self._write([_USER], tools)
            whole = self._write(turns, tools)
        except ChatError:
            return []
        return list(Scanner(self._grammar).feed(whole.removeprefix(prompt)))

    def _thinking(self) -> tuple[str, list[str]]:
        """What stands before the answer, and its rules."""
        reasoning = self._grammar.reasoning
        if reasoning is None:
            return "", []
        literal = Literal(self._vocabulary.mark)
        for opening, closing in REASONING_MARKERS:
            if (literal(opening), literal(closing)) == (reasoning.open, reasoning.close):
                rule = f"thinking: {'' if reasoning.opened_by_prompt else self._marker(opening)}"
                rule += rf" THOUGHT {self._marker(closing)} /\n{{0,2}}/"
                optional = "" if reasoning.opened_by_prompt else "?"
                return f"thinking{optional} ", [rule, r"THOUGHT: /(.|\n)*/"]
        if reasoning.opened_by_prompt:
            raise ChatError(
                "this model's reasoning can't be put into a grammar",
                "Leave response_format and a forced tool_choice out.",
            )
        return "", []

    def _marker(self, text: str) -> str:
        return self._literal(self._vocabulary.mark(text))

    def _literal(self, marked: str) -> str:
        """Marked text in Lark: words as words, control tokens by their ids."""
        parts: list[str] = []
        at = 0
        for start, end, token_id in self._vocabulary.controls(marked):
            parts += [_quoted(marked[at:start]), f"<[{token_id}]>"]
            at = end
        return " ".join(part for part in (*parts, _quoted(marked[at:])) if part)

    def _unforceable(self, name: str) -> ChatError:
        return ChatError(
            f"a call of {name!r} can't be forced: this model doesn't write arguments as JSON",
            "Send tool_choice 'auto', or use another model.",
        )


def _function(tool: Tool) -> dict[str, Any]:
    return cast("dict[str, Any]", tool["function"])


def json_grammar(schema: Mapping[str, Any]) -> str:
    """JSON of a schema, in Lark.

    Raises:
        ChatError: a ``oneOf`` in it can't be kept.
    """
    return f"%json {json.dumps({**without_one_of(schema), 'x-guidance': _JSON_STYLE})}"


def _quoted(text: str) -> str:
    return json.dumps(text) if text else ""
