"""The syntaxes of tool calls that are known: a table, tried in order by `art_core.chat.learn`.

A template's own is the first that reads back what it writes. Literals are marked
text, in which control tokens can't be confused with words.
"""

from __future__ import annotations

from collections.abc import Iterator

from art_core.chat.grammar import CallSyntax
from art_core.chat.syntaxes.gemma import GemmaCalls
from art_core.chat.syntaxes.json_calls import JsonCalls
from art_core.chat.syntaxes.literal import Literal
from art_core.chat.syntaxes.named import NamedJsonCalls
from art_core.chat.syntaxes.python_calls import PythonCalls
from art_core.chat.syntaxes.tagged import TaggedCalls


def call_syntaxes(lit: Literal) -> Iterator[CallSyntax]:
    yield hermes(lit)
    yield _qwen_xml(lit)
    yield from _glm(lit)
    yield _minimax(lit)
    yield _dsml(lit)
    yield from _deepseek(lit)
    yield _kimi(lit)
    yield from _mistral(lit)
    yield _gemma(lit)
    yield PythonCalls(name="lfm2", open=lit("<|tool_call_start|>"), close=lit("<|tool_call_end|>"))
    yield _llama(lit)


def hermes(lit: Literal) -> JsonCalls:
    """``<tool_call>{"name": …, "arguments": …}</tool_call>``: Hermes, Qwen2.5, Qwen3."""
    close = "</tool_call>"
    return JsonCalls(
        name="hermes",
        open=lit("<tool_call>"),
        close=lit(close),
        close_is_text=lit.text(close) == close,
    )


def _llama(lit: Literal) -> JsonCalls:
    """Llama 3.1 and later: a bare object as the whole turn."""
    return JsonCalls(
        name="llama",
        open=rf'(?:{lit("<|python_tag|>")})?(?=\{{\s*"name"\s*:)',
        ends_with_turn=True,
        only_at_start=True,
    )


def _qwen_xml(lit: Literal) -> TaggedCalls:
    """Qwen3-Coder, Qwen3.5, Nemotron 3."""
    return TaggedCalls(
        name="qwen-xml",
        open=lit("<tool_call>"),
        close=lit("</tool_call>"),
        head=r"<function=(?P<name>[^>\n]+)>",
        parameter=(
            r"<parameter=(?P<key>[^>\n]+)>(?P<value>.*?)</parameter>"
            r"(?=\s*<parameter=|\s*</function>)"
        ),
        tail="</function>",
        newlines=True,
    )


def _glm(lit: Literal) -> Iterator[TaggedCalls]:
    """GLM 4.5 to 5, Laguna; and Hunyuan 3 with its own names for the tags."""
    for suffix, outer in (("", False), (":opensource", True)):
        tags = ("tool_call", "arg_key", "arg_value", "tool_calls")
        call, key, value, calls = (lit(f"<{tag}{suffix}>") for tag in tags)
        call_end, key_end, value_end, calls_end = (lit(f"</{tag}{suffix}>") for tag in tags)
        name = r"(?P<name>[^\s<\p{Co}]+)"
        inner = [key, value, key_end, value_end]
        head, tail = name, ""
        if outer:
            sep = lit(f"<tool_sep{suffix}>")
            head, tail = f"{call}{name}(?:{sep})?", call_end
            inner += [call, call_end, sep]
        yield TaggedCalls(
            name=f"glm{suffix}",
            open=calls if outer else call,
            close=calls_end if outer else call_end,
            head=head,
            parameter=rf"{key}(?P<key>.*?){key_end}\s*{value}(?P<value>.*?){value_end}",
            tail=tail,
            inner="|".join(inner),
        )


def _minimax(lit: Literal) -> TaggedCalls:
    return TaggedCalls(
        name="minimax",
        open=lit("<minimax:tool_call>"),
        close=lit("</minimax:tool_call>"),
        head=r'<invoke name="(?P<name>[^"]+)">',
        parameter=(
            r'<parameter name="(?P<key>[^"]+)">(?P<value>.*?)</parameter>'
            r"(?=\s*<parameter |\s*</invoke>)"
        ),
        tail="</invoke>",
    )


def _dsml(lit: Literal) -> TaggedCalls:
    """DeepSeek V4: as MiniMax, each tag with a control token in it."""
    tag = lit("｜DSML｜")
    return TaggedCalls(
        name="dsml",
        open=f"<{tag}tool_calls>",
        close=f"</{tag}tool_calls>",
        head=rf'<{tag}invoke name="(?P<name>[^"]+)">',
        parameter=(
            rf'<{tag}parameter name="(?P<key>[^"]+)" string="(?P<string>true|false)">'
            rf"(?P<value>.*?)</{tag}parameter>"
        ),
        tail=f"</{tag}invoke>",
        inner=tag,
    )


def _deepseek(lit: Literal) -> Iterator[NamedJsonCalls]:
    begin, end = lit("<｜tool▁call▁begin｜>"), lit("<｜tool▁call▁end｜>")
    sep = lit("<｜tool▁sep｜>")
    name = r"(?P<name>[^\n\p{Co}]+)"
    bodies = {
        "deepseek-v3": rf"function{sep}{name}\n```json\n(?P<arguments>.*?)\n```{end}",
        "deepseek-v3.1": rf"{name}{sep}(?P<arguments>.*?){end}",
    }
    for label, body in bodies.items():
        yield NamedJsonCalls(
            name=label,
            open=lit("<｜tool▁calls▁begin｜>"),
            close=lit("<｜tool▁calls▁end｜>"),
            call=f"{begin}{body}",
            inner=f"{begin}|{end}|{sep}",
        )


def _kimi(lit: Literal) -> NamedJsonCalls:
    """Kimi K2: the call's id is ``functions.name:index``, and the name is only in it."""
    begin, end = lit("<|tool_call_begin|>"), lit("<|tool_call_end|>")
    argument = lit("<|tool_call_argument_begin|>")
    id_ = r"(?P<id>(?:functions\.)?(?P<name>[^\s\p{Co}]+?)(?::\d+)?)"
    return NamedJsonCalls(
        name="kimi",
        open=lit("<|tool_calls_section_begin|>"),
        close=lit("<|tool_calls_section_end|>"),
        call=rf"{begin}\s*{id_}\s*{argument}(?P<arguments>.*?){end}",
        inner=f"{begin}|{argument}|{end}",
    )


def _mistral(lit: Literal) -> Iterator[CallSyntax]:
    calls, args = lit("[TOOL_CALLS]"), lit("[ARGS]")
    yield JsonCalls(name="mistral", open=calls, many=True, with_ids=True, ends_with_turn=True)
    yield NamedJsonCalls(
        name="mistral-v11",
        open=rf"{calls}(?P<name>[^\s\[\p{{Co}}]+)(?:{lit('[CALL_ID]')}[^\s\[\p{{Co}}]+)?{args}",
        ends_with_turn=True,
    )


def _gemma(lit: Literal) -> GemmaCalls:
    return GemmaCalls(
        name="gemma4",
        open=lit("<|tool_call>"),
        close=lit("<tool_call|>"),
        quote=lit.text('<|"|>'),
        inner=lit('<|"|>'),
    )
