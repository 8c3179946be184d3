"""Every template × every conversation: what happens, checked, and written as a table.

``python -m tests.art_core.chat.matrix`` writes ``docs/chat-templates.md``.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from art_core.chat import ParsedMessage, TemplateFormat, canonical_key
from art_core.chat.turns import arguments_object
from art_core.errors import ChatError
from tests.art_core.chat.corpus import CONVERSATIONS, Conversation
from tests.art_core.chat.templates import Template, renderer_templates, trl_templates

DOCUMENT = Path(__file__).parents[3] / "docs" / "chat-templates.md"
Outcome = Literal["continues", "new history", "moved", "renders", "refused"]
"""What happened:

- ``continues``: what follows the answer was appended to its recorded tokens, and
  the result is token for token what the template writes for the whole conversation.
- ``new history``: the template writes earlier turns in another way than the model
  sampled them, so the continuation is rendered whole.
- ``moved``: likewise, and what is said beside a tool call is written elsewhere (as
  reasoning, behind the results).
- ``renders``: there is no answer to continue.
- ``refused``: a `ChatError` says what can't be expressed.
"""


class MatrixError(AssertionError):
    """A pair that isn't what it should be."""


@dataclass(frozen=True)
class Cell:
    """The result of one pair."""

    outcome: Outcome
    reason: str = ""
    """Of a refusal."""


def templates() -> Iterator[Template]:
    yield from trl_templates()
    yield from renderer_templates()


def check(template: Template, conversation: Conversation) -> Cell:
    """What happens to a conversation under a template.

    Raises:
        MatrixError: neither rendered whole and read back exactly, nor refused by name.
    """
    place = _last_answer(conversation.messages)
    try:
        chat = template.chat
        conversation = _with_thought(conversation, chat, place)
        rendered = chat.render(conversation.messages, conversation.tools)
    except ChatError as refusal:
        return Cell("refused", refusal.problem)
    _check_text(chat, rendered, conversation)
    if place is None or _malformed(conversation.messages[place]):
        return Cell("renders")
    return _check_answer(chat, conversation, rendered, place)


def _check_text(chat: TemplateFormat, rendered: Sequence[int], conversation: Conversation) -> None:
    """Everything said is in the prompt, as it was said; and nothing is in Python's spelling."""
    text = chat.decode(rendered)
    for said in _texts(conversation):
        if not any(spelling in text for spelling in _spellings(said)):
            raise MatrixError(f"{said!r} isn't in the prompt:\n{text}")
    if chat.grammar.calls is not None and chat.grammar.calls.pythonic:
        return  # Python's spelling is this model's own
    for said in _texts(conversation):
        text = text.replace(said, "")
    if spoilt := _PYTHON.findall(text):
        raise MatrixError(f"{spoilt} in the prompt:\n{text}")


_PYTHON = re.compile(r"\b(?:None|True|False)\b|<[A-Za-z_.]+ object at|\\\\\\\\\"|\{'")


def _spellings(said: str) -> Iterator[str]:
    """Plain, in JSON, in Python, and as a Python literal where only the needful is escaped."""
    yield said
    yield json.dumps(said, ensure_ascii=False)[1:-1]
    yield repr(said)[1:-1]
    yield repr(said + "\"'")[1:-4]
    yield said.replace("\n", "\\n")


def _texts(conversation: Conversation) -> Iterator[str]:
    for message in conversation.messages:
        yield from _strings(message.get("content"))
        for function in _functions(message):
            arguments = function.get("arguments", function.get("args"))
            if isinstance(arguments, str):
                parsed = arguments_object(arguments or "{}")
                arguments = arguments if parsed is None else parsed
            yield from _strings(arguments)
            yield function["name"]


def _functions(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The functions that a message calls, as openai or langchain spell them."""
    calls = cast("list[dict[str, Any]]", message.get("tool_calls") or [])
    return [call.get("function") or call for call in calls]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for key, item in fields.items():
            if key not in ("type", "id"):
                yield from _strings(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _strings(item)


def _last_answer(messages: Sequence[dict[str, Any]]) -> int | None:
    roles = [message.get("role") or message.get("type") for message in messages]
    places = [at for at, role in enumerate(roles) if role in ("assistant", "ai") and at > 0]
    return places[-1] if places else None


def _check_answer(
    chat: TemplateFormat, conversation: Conversation, rendered: list[int], place: int
) -> Cell:
    """The last answer, as the template itself writes it, is read back and continued."""
    messages, tools = conversation.messages, conversation.tools
    before, said, after = messages[:place], messages[place], messages[place + 1 :]
    try:
        prompt = chat.render(before, tools)
    except ChatError as refusal:
        return Cell("refused", refusal.problem)
    sampled = _sampled(chat, prompt, rendered)
    if sampled is None:
        return Cell("new history")
    parsed = _check_stream(chat, sampled, tools)
    if _strays(parsed):  # it begins, or ends, in another way than a turn that is sampled
        return Cell("new history")
    if parsed.errors:
        raise MatrixError(f"{chat.decode(sampled)!r}: {parsed.errors}")
    if not _same(parsed.message, said):
        if _same(parsed.message, _only_calls(said)) or _same(parsed.message, _only_text(said)):
            return Cell("moved")
        raise MatrixError(f"{chat.decode(sampled)!r} reads as\n{parsed.message}, not\n{said}")
    bridged = chat.bridge(
        [*prompt, *sampled],
        [*before, parsed.message],
        _answering(after, said, parsed.message),
        tools,
        sampled=len(sampled),
    )
    if bridged is not None and bridged[: len(prompt) + len(sampled)] != [*prompt, *sampled]:
        raise MatrixError("the continued prompt doesn't begin with the recorded tokens")
    if bridged is None:
        return Cell("new history")
    if bridged != rendered:
        raise MatrixError(
            f"continued as\n{chat.decode(bridged)!r}\nbut rendered as\n{chat.decode(rendered)!r}"
        )
    return Cell("continues")


def _sampled(
    chat: TemplateFormat, prompt: Sequence[int], rendered: Sequence[int]
) -> list[int] | None:
    """What the model would have sampled: what the template writes, up to the end of the turn."""
    if list(rendered[: len(prompt)]) != list(prompt):
        return None
    rest = list(rendered[len(prompt) :])
    ends = [at for at, token_id in enumerate(rest) if token_id in chat.stop_token_ids]
    return rest[: ends[0] + 1] if ends else None


def _strays(parsed: ParsedMessage) -> bool:
    return any("stray control token" in error for error in parsed.errors)


def _with_thought(
    conversation: Conversation, chat: TemplateFormat, place: int | None
) -> Conversation:
    """With reasoning in the last answer, where the model is made to begin with some."""
    prompted = chat.grammar.reasoning is not None and chat.grammar.reasoning.opened_by_prompt
    if not prompted or place is None:
        return conversation
    messages = list(conversation.messages)
    messages[place] = {"reasoning_content": "Hm, let me think.", **messages[place]}
    return replace(conversation, messages=messages)


def _only_text(said: dict[str, Any]) -> dict[str, Any]:
    text = json.loads(canonical_key(said))[2]
    return {"role": "assistant", "content": text}


def _only_calls(said: dict[str, Any]) -> dict[str, Any]:
    calls = said.get("tool_calls") or _blocks(said)
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _malformed(said: dict[str, Any]) -> bool:
    """Whether a client's own tool call has arguments that aren't a JSON object."""
    spelled = [function.get("arguments") or "{}" for function in _functions(said)]
    return any(isinstance(text, str) and arguments_object(text) is None for text in spelled)


def _answering(
    after: Sequence[dict[str, Any]], said: dict[str, Any], parsed: dict[str, Any]
) -> list[dict[str, Any]]:
    """What follows, with the ids that the tool calls were given when they were read."""
    old = [call["id"] for call in said.get("tool_calls") or _blocks(said)]
    new = [call["id"] for call in parsed.get("tool_calls", [])]
    ids = dict(zip(old, new, strict=False))
    return [
        {**message, "tool_call_id": ids.get(message["tool_call_id"], message["tool_call_id"])}
        if "tool_call_id" in message
        else message
        for message in after
    ]


def _blocks(said: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls among content parts, as anthropic spells them."""
    content = said.get("content")
    parts = cast("list[dict[str, Any]]", content) if isinstance(content, list) else []
    return [part for part in parts if part["type"] == "tool_use"]


def _check_stream(
    chat: TemplateFormat, sampled: Sequence[int], tools: Sequence[Any] | None
) -> ParsedMessage:
    """The answer read at once, which must equal the answer read token by token."""
    parser = chat.stream_parser(tools)
    deltas = [parser.feed([token_id]) for token_id in sampled]
    last, streamed = parser.finish()
    whole = chat.parse(sampled, tools)
    if whole != streamed:
        raise MatrixError(f"streamed {streamed}, whole {whole}")
    content = "".join(delta.content for delta in (*deltas, last))
    if content != (whole.message["content"] or ""):
        raise MatrixError(f"streamed {content!r}, whole {whole.message['content']!r}")
    return whole


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """The same to a model, but for blanks around the text and for ids, which templates drop."""
    fields = [json.loads(canonical_key(message)) for message in (one, other)]
    for field in fields:
        field[2] = field[2].strip()
        field[3] = [call[1:] for call in field[3]]
    return fields[0] == fields[1]


LETTERS: dict[Outcome, str] = {
    "continues": "●",
    "new history": "○",
    "moved": "◐",
    "renders": "·",
    "refused": "×",
}


def table(rows: Mapping[Template, Mapping[str, Cell]]) -> str:
    """The matrix as a Markdown document."""
    counts = Counter[str](cell.outcome for row in rows.values() for cell in row.values())
    lines = [
        introduction(len(rows), counts),
        "## What each template wants\n",
        "| template | tool calls | arguments as | content as | reasoning | a turn ends with |",
        "|---|---|---|---|---|---|",
        *(dialect(template) for template in rows),
        "\n## Every pair\n",
        *conversation_numbers(),
        "```text",
        *(_grid_row(template, row) for template, row in rows.items()),
        "```",
        "\n## What is refused, and how it is said\n",
        *_refusals(rows),
    ]
    return "\n".join(lines) + "\n"


def introduction(templates: int, counts: Mapping[str, int]) -> str:
    """What the table is, and how often each outcome is in it."""
    return _INTRODUCTION.format(
        templates=templates,
        conversations=len(CONVERSATIONS),
        pairs=sum(counts.values()),
        **{outcome.replace(" ", "_"): counts[outcome] for outcome in LETTERS},
    )


_INTRODUCTION = """\
# Chat templates

Written by `python -m tests.art_core.chat.matrix`. `make test` checks the counts and one
pair in eight, `make test-full` all of them.

{templates} templates (all that TRL ships, and the renderers of the `renderers`
library that need no download) × {conversations} conversations = {pairs} pairs.
In each pair that isn't refused, everything said is in the prompt as it was said,
nothing is in Python's spelling, and the answer is read back to what it was, whole
and token by token.

| | | pairs |
|---|---|---|
| ● | what follows the answer is appended to its recorded tokens; token for token \
what the template writes for the whole conversation | {continues} |
| ○ | the template writes earlier turns in another way than they were sampled (drops \
reasoning, say): a continuation is rendered whole and begins a new history | {new_history} |
| ◐ | likewise, and the template writes what is said beside a tool call elsewhere \
(as reasoning, behind the results, as a turn of its own) | {moved} |
| · | there is no answer to continue | {renders} |
| × | refused by name | {refused} |
"""


def dialect(template: Template) -> str:
    try:
        chat = template.chat
    except ChatError as refusal:
        return f"| {template} | {refusal.problem} | | | | |"
    syntax = chat.grammar.calls.name if chat.grammar.calls else "none"
    calls = f"our convention ({syntax})" if chat.tools_as_text else syntax
    reasoning = chat.grammar.reasoning
    thought = (
        "no"
        if reasoning is None
        else "opened by the prompt"
        if reasoning.opened_by_prompt
        else "yes"
    )
    ends = ", ".join(f"`{chat.decode([token_id])}`" for token_id in chat.stop_token_ids)
    ends = ends.replace("|", "\\|")
    forms = chat.forms
    return (
        f"| {template} | {calls} | {forms.arguments if not chat.tools_as_text else 'text'} "
        f"| {forms.content} | {thought} | {ends} |"
    )


def conversation_numbers() -> Iterator[str]:
    for at, conversation in enumerate(CONVERSATIONS, start=1):
        yield f"{at}. {conversation}"
    yield ""


def _grid_row(template: Template, row: Mapping[str, Cell]) -> str:
    return f"{template!s:42}" + "".join(LETTERS[cell.outcome] for cell in row.values())


def _refusals(rows: Mapping[Template, Mapping[str, Cell]]) -> Iterator[str]:
    found: dict[tuple[str, str], list[str]] = {}
    for template, row in rows.items():
        for name, cell in row.items():
            if cell.outcome == "refused":
                found.setdefault((cell.reason, name), []).append(str(template))
    merged: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (reason, name), where in found.items():
        merged.setdefault((reason, tuple(where)), []).append(name)
    yield "| conversations | templates | the error |"
    yield "|---|---|---|"
    for (reason, where), names in merged.items():
        which = "all" if len(where) == len(rows) else ", ".join(where)
        yield f"| {', '.join(names)} | {which} | {said(reason)} |"


def said(reason: str) -> str:
    """In a cell of a table."""
    return reason.replace("|", "\\|").replace("\n", " ")


def main() -> None:
    rows = {
        template: {
            conversation.name: check(template, conversation) for conversation in CONVERSATIONS
        }
        for template in templates()
    }
    DOCUMENT.write_text(table(rows), encoding="utf-8")
    print(DOCUMENT, Counter(cell.outcome for row in rows.values() for cell in row.values()))


if __name__ == "__main__":
    main()
