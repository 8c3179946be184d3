"""Asks a template how its model writes a turn, by having it write some.

Nothing here goes by model names. A template is given short conversations of
made-up words; what it writes around them tells which token ends a turn, whether
reasoning has markers, and which of the known syntaxes of tool calls is its own:
the one that reads back exactly what the template was given.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import regex

from art_core.chat.dialects import REASONING_MARKERS, channels
from art_core.chat.grammar import CallSyntaxError, Grammar, Reasoning, ToolTypes
from art_core.chat.reading import within
from art_core.chat.scanner import Scanner
from art_core.chat.syntaxes.known import call_syntaxes, hermes
from art_core.chat.syntaxes.literal import Literal
from art_core.chat.turns import Call, Turn, same_call
from art_core.chat.vocabulary import Vocabulary
from art_core.chat.writer import ARGUMENTS_FORMS, CONTENT_FORMS, TOOLS_FORMS, Writer
from art_core.errors import ChatError
from art_core.trajectories import Tool

_USER = Turn(role="user", text="qxuzv")
_ANSWER = Turn(role="assistant", text="qxazv")
_ARGUMENTS = {
    "text": "a b\n\"c\" 'd' \\e",
    "count": 3,
    "ratio": 1.0,
    "flag": True,
    "nothing": None,
    "items": ["x", 1.5, False, None],
    "object": {"k": "v", "n": 2, "x": None},
}
_TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")
_CALL = Call(name="qx_look-up", arguments=json.dumps(_ARGUMENTS))
# Kimi's template writes an id for the name; Mistral's insist on nine characters.
_IDS = ("functions.qx_look-up:0", "qxcall001")
_TOOL: Tool = {
    "type": "function",
    "function": {
        "name": _CALL.name,
        "description": "qxdzv",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {
                key: {"type": kind, "description": "qxpzv"}
                for key, kind in zip(_ARGUMENTS, _TYPES, strict=True)
            },
            "required": ["text"],
            "additionalProperties": False,
        },
    },
}
_PYTHON_WORDS = regex.compile(r"\b(?:True|False|None)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What a template showed."""

    grammar: Grammar
    end_token_ids: tuple[int, ...]
    tools_as_text: bool
    """It knows no tools: they are written as text, by our convention."""
    unreadable_tools: bool
    """It writes tool calls, in no syntax that we know."""


def learn(writer: Writer, vocabulary: Vocabulary) -> Learned:
    """Set ``writer`` to the forms it wants, and say how its model writes.

    Raises:
        ChatError: it can't even write a user's message and an answer.
    """
    prompt = _settle_content_form(writer)
    _settle_tools_form(writer)
    closers, ends = _ends(writer, vocabulary)
    grammars = [
        replace(grammar, skip=(*grammar.skip, *closers))
        for grammar in _grammars(writer, vocabulary, prompt)
    ]
    grammar, written, readable = _with_calls(writer, grammars)
    if grammar is None:
        return Learned(
            grammar=replace(grammars[-1], calls=hermes(Literal(vocabulary.mark))),
            end_token_ids=tuple(ends),
            tools_as_text=readable,
            unreadable_tools=not readable,
        )
    ends += _end_of_call(grammar, vocabulary, written)
    return Learned(
        grammar=grammar, end_token_ids=tuple(ends), tools_as_text=False, unreadable_tools=False
    )


def _settle_content_form(writer: Writer) -> str:
    """The prompt of a lone user message; sets whether content is a string or parts."""
    refusal: ChatError | None = None
    for form in CONTENT_FORMS:
        writer.forms.content = form
        try:
            prompt = writer.text([_USER], (), generation=True)
        except ChatError as error:
            refusal = refusal or error
        else:
            if _USER.text in prompt:
                return prompt
    raise refusal or ChatError(
        "the chat template leaves a user's message out", "Pass another one with template=."
    )


def _settle_tools_form(writer: Writer) -> None:
    for form in TOOLS_FORMS:
        writer.forms.tools = form
        try:
            text = writer.text([_USER], [_TOOL], generation=True)
        except ChatError:
            return
        if not _PYTHON_WORDS.search(text):
            return
    writer.forms.tools = "object"


def _grammars(writer: Writer, vocabulary: Vocabulary, prompt: str) -> Iterator[Grammar]:
    """What the model's grammar may be, by the markers that template and vocabulary know."""
    lit = Literal(vocabulary.mark)
    for channel in channels(lit):
        if channel.sign in vocabulary.ids and channel.sign in (writer.source or channel.sign):
            yield Grammar(
                control=vocabulary.name_pattern,
                reasoning=channel.reasoning,
                calls=channel.calls,
                skip=channel.skip,
            )
    reasoning = None
    for opening, closing in REASONING_MARKERS:
        if closing in vocabulary.ids or closing in writer.source:
            opened = prompt.rstrip().endswith(vocabulary.mark(opening).rstrip())
            reasoning = Reasoning(open=lit(opening), close=lit(closing), opened_by_prompt=opened)
            break
    for calls in call_syntaxes(lit):
        yield Grammar(control=vocabulary.name_pattern, reasoning=reasoning, calls=calls)


def _with_calls(writer: Writer, grammars: list[Grammar]) -> tuple[Grammar | None, str, bool]:
    """The grammar whose calls the template writes, and a turn with one, up to the result.

    None where it writes none; and False where it writes some that no grammar reads.
    """
    knows_calls = False
    for form, call_id in product(ARGUMENTS_FORMS, _IDS):
        writer.forms.arguments = form
        call = Turn(role="assistant", calls=(replace(_CALL, id=call_id),))
        result = Turn(role="tool", text="qxrzv", name=_CALL.name, call_id=call_id)
        turns = [_USER, call, result]
        try:
            prompt = writer.text([_USER], [_TOOL], generation=True)
            text = writer.text(turns, [_TOOL], generation=True)
        except ChatError:
            continue
        written = text.partition(_USER.text)[2]
        if "qxdzv" not in text or "qxrzv" not in written or _CALL.name not in written:
            continue
        knows_calls = True
        for grammar in grammars:
            if text.startswith(prompt):
                found = _reads_back(grammar, text[len(prompt) :])
            else:  # it writes earlier turns in another way than it opens a new one
                found = _reads_back(within(grammar), written)
            if found:
                return grammar, written, True
    return None, "", not knows_calls


def _reads_back(grammar: Grammar, written: str) -> bool:
    """Whether the first call in ``written`` is the one that was given."""
    syntax = grammar.calls
    if syntax is None or (not syntax.pythonic and _PYTHON_WORDS.search(written)):
        return False
    types = ToolTypes([_TOOL])
    for piece in Scanner(grammar).feed(written):
        if piece.kind == "call":
            try:
                calls = syntax.decode(piece.opening, piece.body, types)
            except CallSyntaxError:
                return False
            return [same_call(call) for call in calls] == [same_call(_CALL)]
    return False


def _ends(writer: Writer, vocabulary: Vocabulary) -> tuple[list[str], list[int]]:
    """What closes an answer before its end (regexes), and the tokens that may end it."""
    last = _behind_answer(writer, vocabulary, [_USER, _ANSWER])
    try:
        inner = _behind_answer(writer, vocabulary, [_USER, _ANSWER, _USER])
    except ChatError:
        inner = last
    common = [name for name, other in zip(last, inner, strict=False) if name == other]
    if common:
        *closers, end = common
    else:  # the last turn ends in its own way, or nothing ends one but the next one's opening
        closers, end = [], (last or inner or [""])[-1 if last else 0]
    ends = [token_id for _, _, token_id in vocabulary.controls(end)]
    return [regex.escape(closer) for closer in closers], ends


def _behind_answer(writer: Writer, vocabulary: Vocabulary, turns: list[Turn]) -> list[str]:
    """The control tokens behind the answer, as marked text."""
    _, answer, behind = writer.text(turns, (), generation=False).partition(_ANSWER.text)
    if not answer:
        raise ChatError(
            "the chat template leaves an assistant's message out", "Pass another with template=."
        )
    return [behind[start:end] for start, end, _ in vocabulary.controls(behind)]


def _end_of_call(grammar: Grammar, vocabulary: Vocabulary, written: str) -> list[int]:
    """The control token behind the call, where it isn't part of it."""
    seen_call = False
    for piece in Scanner(within(grammar)).feed(written):
        seen_call = seen_call or piece.kind == "call"
        if seen_call and piece.kind == "control":
            return [token_id for _, _, token_id in vocabulary.controls(piece.text)]
    return []
