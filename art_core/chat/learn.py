"""Asks a template how its model writes a turn, by having it write some.

Nothing here goes by model names. A template is given short conversations of
made-up words; what it writes around them tells which token ends a turn, whether
reasoning has markers, and which of the known syntaxes of tool calls is its own:
the one that reads back exactly what the template was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import regex

from art_core.chat.grammar import CallSyntax, CallSyntaxError, Grammar, Reasoning, ToolTypes
from art_core.chat.scanner import Scanner
from art_core.chat.syntax_json import JsonCalls
from art_core.chat.template import ArgumentsForm, Template
from art_core.chat.turns import Call, Turn
from art_core.chat.vocabulary import Vocabulary
from art_core.errors import ChatError
from art_core.trajectories import Tool

_REASONING_MARKERS = (("<think>", "</think>"),)
_USER = Turn(role="user", text="qxuzv")
_ANSWER = Turn(role="assistant", text="qxazv")
_CALL = Call(
    id="callqx001", name="qx_look_up", arguments='{"first": "a b\\n\\"c\\"", "n": 3, "on": true}'
)
_TOOL: Tool = {
    "type": "function",
    "function": {
        "name": _CALL.name,
        "description": "qxdzv",
        "parameters": {
            "type": "object",
            "properties": {
                "first": {"type": "string", "description": "qxpzv"},
                "n": {"type": "integer", "description": "a number"},
                "on": {"type": "boolean", "description": "a flag"},
            },
            "required": ["first"],
        },
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What a template showed."""

    grammar: Grammar
    end_token_ids: tuple[int, ...]
    tools_as_text: bool
    """It knows no tools: they are written as text, by our convention."""
    unreadable_tools: bool
    """It writes tool calls, in no syntax that we know."""


def learn_grammar(template: Template, vocabulary: Vocabulary) -> Learned:
    """Set ``template``'s forms to what it wants, and say how its model writes.

    Raises:
        ChatError: it can't even write a user's message and an answer.
    """
    prompt = _settle_content_form(template)
    reasoning = _reasoning(template, vocabulary, prompt)
    ends = list(_end_tokens(template, vocabulary))
    calls, readable = _call_syntax(template, vocabulary, reasoning)
    as_text = calls is None and readable
    if as_text:
        calls = hermes(vocabulary)
    return Learned(
        grammar=Grammar(control=vocabulary.name_pattern, reasoning=reasoning, calls=calls),
        end_token_ids=tuple(ends),
        tools_as_text=as_text,
        unreadable_tools=not readable,
    )


def hermes(vocabulary: Vocabulary) -> CallSyntax:
    """``<tool_call>{…}</tool_call>``, one object each."""
    return JsonCalls(
        name="hermes",
        open=_literal(vocabulary, "<tool_call>"),
        close=_literal(vocabulary, "</tool_call>"),
    )


def _literal(vocabulary: Vocabulary, text: str) -> str:
    return regex.escape(vocabulary.mark(text))


def _settle_content_form(template: Template) -> str:
    """The prompt of a lone user message; sets whether content is a string or parts."""
    refusal: ChatError | None = None
    for form in ("string", "parts"):
        template.content_form = form
        try:
            prompt = template.text([_USER], (), generation=True)
        except ChatError as error:
            refusal = refusal or error
        else:
            if _USER.text in prompt:
                return prompt
    raise refusal or ChatError(
        "the chat template leaves a user's message out", "Pass another one with template=."
    )


def _reasoning(template: Template, vocabulary: Vocabulary, prompt: str) -> Reasoning | None:
    for opening, closing in _REASONING_MARKERS:
        if closing in template.source or closing in vocabulary.ids:
            return Reasoning(
                open=_literal(vocabulary, opening),
                close=_literal(vocabulary, closing),
                opened_by_prompt=prompt.rstrip().endswith(vocabulary.mark(opening)),
            )
    return None


def _end_tokens(template: Template, vocabulary: Vocabulary) -> Iterator[int]:
    """The control token behind an answer, when the user speaks next."""
    try:
        text = template.text([_USER, _ANSWER, _USER], (), generation=False)
    except ChatError:
        text = template.text([_USER, _ANSWER], (), generation=False)
    end = vocabulary.first_control(text, text.index(_ANSWER.text))
    if end is not None:
        yield end[2]


def _call_syntax(
    template: Template, vocabulary: Vocabulary, reasoning: Reasoning | None
) -> tuple[CallSyntax | None, bool]:
    """The template's own syntax, if it has one; and False if it has one we can't read."""
    turn = Turn(role="assistant", calls=(_CALL,))
    result = Turn(role="tool", text="qxrzv", name=_CALL.name, call_id=_CALL.id)
    wrote_calls = False
    for form in _FORMS:
        template.arguments_form = form
        try:
            prompt = template.text([_USER], [_TOOL], generation=True)
            text = template.text([_USER, turn, result], [_TOOL], generation=True)
        except ChatError:
            continue
        if "qxdzv" not in text or _CALL.name not in text or "qxrzv" not in text:
            continue
        wrote_calls = _CALL.name in text.removeprefix(prompt)
        if not text.startswith(prompt):
            continue
        for known in _KNOWN_SYNTAXES:
            syntax = known(vocabulary)
            if _reads_back(
                Grammar(control=vocabulary.name_pattern, reasoning=reasoning, calls=syntax),
                text.removeprefix(prompt),
            ):
                return syntax, True
    return None, not wrote_calls


def _reads_back(grammar: Grammar, written: str) -> bool:
    types = ToolTypes([_TOOL])
    if grammar.calls is None:
        return False
    for piece in Scanner(grammar).feed(written):
        if piece.kind == "call":
            try:
                calls = grammar.calls.decode(piece.opening, piece.body, types)
            except CallSyntaxError:
                return False
            return [(call.name, call.arguments_object()) for call in calls] == [
                (_CALL.name, _CALL.arguments_object())
            ]
    return False


_FORMS: Sequence[ArgumentsForm] = ("object", "texts", "string")
_KNOWN_SYNTAXES: Sequence[Callable[[Vocabulary], CallSyntax]] = (hermes,)
