"""Markers of reasoning, and models that write their turn in channels.

Tables, tried in order by `art_core.chat.learn`. Literals are marked text, in which
control tokens can't be confused with words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from art_core.chat.grammar import CallSyntax, Reasoning
from art_core.chat.syntaxes.json_calls import JsonCalls
from art_core.chat.syntaxes.literal import Literal
from art_core.chat.syntaxes.named import NamedJsonCalls
from art_core.chat.syntaxes.tagged import TaggedCalls

REASONING_MARKERS: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),
    ("<think:opensource>", "</think:opensource>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("[THINK]", "[/THINK]"),
)


KNOWN_MARKERS = frozenset(
    {
        *(marker for pair in REASONING_MARKERS for marker in pair),
        *(
            f"<{slash}{tag}{suffix}>"
            for tag in ("tool_call", "tool_calls", "arg_key", "arg_value", "tool_response")
            for slash in ("", "/")
            for suffix in ("", ":opensource")
        ),
        *("<tool_sep:opensource>", "<minimax:tool_call>", "</minimax:tool_call>"),
    }
)
"""Added tokens that are structure even where a tokenizer doesn't call them special."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """A model that writes its turn as messages of its own, each with a header."""

    sign: str
    """A control token that gives it away."""
    reasoning: Reasoning
    skip: tuple[str, ...]
    calls: CallSyntax


def channels(lit: Literal) -> Iterator[Channels]:
    yield _harmony(lit)
    yield _atem(lit)
    yield _inkling(lit)


def _harmony(lit: Literal) -> Channels:
    """gpt-oss: ``<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final…``."""
    start = f"(?:{lit('<|end|>')})?(?:{lit('<|start|>')}assistant)?"
    channel, message = lit("<|channel|>"), lit("<|message|>")
    to = r" ?to=functions\.(?P<name>[^\s<\p{Co}]+)"
    kind = f" ?(?:{lit('<|constrain|>')})?(?:json)?"
    return Channels(
        sign="<|channel|>",
        reasoning=Reasoning(open=f"{start}{channel}analysis{message}", close=lit("<|end|>")),
        skip=(f"{start}{channel}(?:final|commentary){message}",),
        calls=NamedJsonCalls(
            name="harmony",
            open=(
                f"{start}(?:{to}{channel}(?:commentary|analysis)"
                f"|{channel}(?:commentary|analysis){to}){kind}{message}"
            ),
            ends_with_turn=True,
        ),
    )


def _atem(lit: Literal) -> Channels:
    """Muse: `` to=self<|message|>…<|eom|><|start|>assistant to=user<|message|>…``."""
    start = f"(?:{lit('<|eom|>')})?(?:{lit('<|start|>')}assistant)?"
    message = lit("<|message|>")
    return Channels(
        sign="<|eom|>",
        reasoning=Reasoning(open=f"{start} to=self{message}", close=lit("<|eom|>")),
        skip=(f"{start} to=user{message}",),
        calls=TaggedCalls(
            name="atem",
            open=rf"{start} to=[^\s<\p{{Co}}]+{message}\s*<atem:function_calls>",
            close="</atem:function_calls>",
            head=r'<atem:invoke name="(?P<name>[^"]+)">',
            parameter=(
                r'<atem:parameter name="(?P<key>[^"]+)">(?P<value>.*?)</atem:parameter>'
                r"(?=\s*<atem:parameter |\s*</atem:invoke>)"
            ),
            tail="</atem:invoke>",
        ),
    )


def _inkling(lit: Literal) -> Channels:
    """Inkling: ``<|content_text|>…<|end_message|><|message_model|>name<|content_invoke_…|>…``."""
    start = f"(?:{lit('<|end_message|>')})?(?:{lit('<|message_model|>')})?"
    return Channels(
        sign="<|message_model|>",
        reasoning=Reasoning(
            open=f"{start}{lit('<|content_thinking|>')}", close=lit("<|end_message|>")
        ),
        skip=(f"{start}{lit('<|content_text|>')}",),
        calls=JsonCalls(
            name="inkling",
            open=rf"{start}[\w.-]*{lit('<|content_invoke_tool_json|>')}",
            close=lit("<|end_message|>"),
        ),
    )
