"""Grammars under which a model can only call tools (``tool_choice: required``)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from art_core.chat.grammar import Grammar
from art_core.chat.reading import outline
from art_core.chat.turns import Call, Turn
from art_core.chat.vocabulary import Vocabulary
from art_core.chat.writer import Writer
from art_core.errors import ChatError
from art_core.trajectories import Tool

_ARGUMENTS = '{"qxk": "qxv"}'
_CALLS = tuple(Call(id=f"qxcall00{n}", name=f"qx_name_{n}", arguments=_ARGUMENTS) for n in (1, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFrame:
    """What a model writes around the names and the JSON arguments of its calls (marked text)."""

    before: str
    named: str
    """Between a call's name and its arguments."""
    between: str | None
    """From the arguments of one call to the name of the next; None: one call at most."""
    after: str


def learn_frame(writer: Writer, grammar: Grammar, tools: Sequence[Tool]) -> CallFrame | None:
    """How ``writer`` writes calls; None where it doesn't write arguments as JSON."""
    one = _turn(writer, grammar, tools, _CALLS[:1])
    if one is None:
        return None
    before, name, rest = one.partition(_CALLS[0].name)
    named, arguments, after = rest.partition(_ARGUMENTS)
    if not name or not arguments:
        return None
    two = _turn(writer, grammar, tools, _CALLS)
    between = None
    if two is not None:
        start = f"{before}{_CALLS[0].name}{named}{_ARGUMENTS}"
        end = f"{_CALLS[1].name}{named}{_ARGUMENTS}{after}"
        if two.startswith(start) and two.endswith(end):
            between = two[len(start) : len(two) - len(end)]
    return CallFrame(before=before, named=named, between=between, after=after)


def _turn(
    writer: Writer, grammar: Grammar, tools: Sequence[Tool], calls: tuple[Call, ...]
) -> str | None:
    """The assistant turn with these calls, up to its end."""
    user = Turn(role="user", text="qxuzv")
    results = [Turn(role="tool", text="qxrzv", name=c.name, call_id=c.id) for c in calls]
    try:
        prompt = writer.text([user], tools, generation=True)
        whole = writer.text(
            [user, Turn(role="assistant", calls=calls), *results], tools, generation=True
        )
    except ChatError:
        return None
    if not whole.startswith(prompt):
        return None
    written = whole[len(prompt) :]
    read = outline(grammar, written)
    return written[: read.end] if read.calls == len(calls) else None


def call_grammar(
    frame: CallFrame, vocabulary: Vocabulary, tools: Sequence[Tool], *, several: bool
) -> str:
    """In llguidance's Lark dialect: one call of any of ``tools``, or ``several``."""

    def lark(marked: str) -> str:
        parts: list[str] = []
        at = 0
        for start, end, token_id in vocabulary.controls(marked):
            parts += [json.dumps(marked[at:start])] if start > at else []
            parts.append(f"<[{token_id}]>")
            at = end
        parts += [json.dumps(marked[at:])] if at < len(marked) else []
        return " ".join(parts)

    more = f" ({lark(frame.between)} call)*" if several and frame.between is not None else ""
    rules = [f"start: {lark(frame.before)} call{more} {lark(frame.after)}"]
    functions = [cast("Mapping[str, Any]", tool["function"]) for tool in tools]
    names = (
        f"{json.dumps(function['name'])} {lark(frame.named)} arguments_{n}"
        for n, function in enumerate(functions)
    )
    rules.append("call: " + " | ".join(names))
    rules += [
        f"arguments_{n}: %json {json.dumps(_schema(function))}"
        for n, function in enumerate(functions)
    ]
    return "\n".join(rules)


def _schema(function: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the arguments, spelled as templates spell JSON.

    What the grammar engine can't check (formats, say) is let through, unless the
    tool is ``strict``.
    """
    guidance = {
        "whitespace_flexible": False,
        "item_separator": ", ",
        "key_separator": ": ",
        "lenient": not function.get("strict", False),
    }
    return {"type": "object", **function["parameters"], "x-guidance": guidance}
