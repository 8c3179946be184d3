# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Every template × every conversation: what happens, checked, and written as a table.

``python -m tests.art_core.chat.matrix`` writes ``docs/chat-templates.md``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from art_core.chat import ParsedMessage, TemplateFormat, canonical_key
from art_core.chat.turns import arguments_object
from art_core.errors import ChatError
from tests.art_core.chat.corpus import CONVERSATIONS, Conversation
from tests.art_core.chat.templates import Template, renderer_templates, trl_templates

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
        for item in message.get("tool_calls") or []:
            function = item.get("function") or item
            arguments = function.get("arguments", function.get("args"))
            if isinstance(arguments, str):
                try:
                    arguments = json.loads(arguments or "{}")
                except ValueError:
                    yield arguments
                    continue
            yield from _strings(arguments)
            yield function["name"]


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
    calls = said.get("tool_calls")
    if not calls and isinstance(said.get("content"), list):
        calls = [part for part in said["content"] if part["type"] == "tool_use"]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _malformed(said: dict[str, Any]) -> bool:
    """Whether a client's own tool call has arguments that aren't a JSON object."""
    arguments = [
        call["function"]["arguments"] or "{}"
        for call in said.get("tool_calls") or []
        if isinstance(call.get("function", {}).get("arguments"), str)
    ]
    return any(arguments_object(text) is None for text in arguments)


def _answering(
    after: Sequence[dict[str, Any]], said: dict[str, Any], parsed: dict[str, Any]
) -> list[dict[str, Any]]:
    """What follows, with the ids that the tool calls were given when they were read."""
    calls = said.get("tool_calls") or []
    if not calls and isinstance(said.get("content"), list):
        calls = [part for part in said["content"] if part["type"] == "tool_use"]
    given = [call["id"] for call in parsed.get("tool_calls", [])]
    new_ids = dict(zip([call["id"] for call in calls], given, strict=False))
    return [
        {**message, "tool_call_id": new_ids.get(message["tool_call_id"], message["tool_call_id"])}
        if "tool_call_id" in message
        else message
        for message in after
    ]


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


def run() -> dict[Template, dict[str, Cell]]:
    return {
        template: {
            conversation.name: check(template, conversation) for conversation in CONVERSATIONS
        }
        for template in templates()
    }
