# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false
"""What is learned of a conversation is what the model would have sampled, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest
from jinja2 import TemplateError

from art_core.chat import TemplateFormat
from art_core.chat.normalise import normalise
from art_core.errors import ChatError
from art_core.sft.conversations import TokenRow, is_answer, token_rows
from tests.art_core.chat.corpus import CONVERSATIONS, Conversation
from tests.art_core.chat.matrix import _malformed, _same
from tests.art_core.chat.templates import Template, trl_templates

TEMPLATES = list(trl_templates())
USABLE = [
    conversation
    for conversation in CONVERSATIONS
    if any(map(is_answer, conversation.messages[1:]))
    and not any(is_answer(m) and _malformed(m) for m in conversation.messages)
]


def answers(conversation: Conversation) -> list[bool]:
    return [is_answer(message) for message in conversation.messages]


def spans(row: TokenRow) -> list[tuple[int, int]]:
    """Start and end of each run of trained tokens."""
    found: list[tuple[int, int]] = []
    at = 0
    for trained, run in groupby(row.trained):
        length = len(list(run))
        if trained:
            found.append((at, at + length))
        at += length
    return found


def check_rows(chat: TemplateFormat, conversation: Conversation, rows: Sequence[TokenRow]) -> None:
    """Each answer is learned once, whole with its end, behind the prompt that serving gives."""
    said = [
        (at, message)
        for at, message in enumerate(conversation.messages)
        if at > 0 and is_answer(message)
    ]
    learned: list[tuple[TokenRow, int, int]] = [(r, s, e) for r in rows for s, e in spans(r)]
    # Two answers with nothing in between are one run of tokens; their ends tell them apart.
    pieces: list[tuple[TokenRow, int, int]] = []
    for row, start, end in learned:
        cuts = [i + 1 for i in range(start, end) if row.token_ids[i] in chat.stop_token_ids]
        assert cuts, "an answer without its end"
        assert cuts[-1] == end, "something is learned behind the end of an answer"
        pieces += [(row, a, b) for a, b in zip([start, *cuts], cuts, strict=False)]
    assert len(pieces) == len(said)
    for (row, start, end), (at, message) in zip(pieces, said, strict=True):
        parsed = chat.parse(row.token_ids[start:end], conversation.tools)
        assert not parsed.errors
        assert _same(parsed.message, message)
        thought = parsed.message.get("reasoning_content") or ""
        assert isinstance(thought, str)
        assert thought.strip() == normalise([message])[0].reasoning.strip()
        before = list(row.token_ids[:start])
        if start == spans(row)[0][0]:  # nothing of this row was sampled before
            assert before == chat.render(conversation.messages[:at], conversation.tools)


def share_of(template: Template, share: int) -> list[Conversation]:
    offset = TEMPLATES.index(template)
    return [each for at, each in enumerate(USABLE) if (at + offset) % share == 0]


def check_template(template: Template, conversations: Sequence[Conversation]) -> int:
    """How many conversations were expressed; the others are refused by name."""
    expressed = 0
    for conversation in conversations:
        try:
            chat = template.chat
            rows = token_rows(
                chat, conversation.messages, conversation.tools, answers(conversation)
            )
        except ChatError:
            continue
        expressed += 1
        check_rows(chat, conversation, rows)
    return expressed


@pytest.mark.parametrize("template", TEMPLATES, ids=str)
def test_a_share_of_the_conversations(template: Template) -> None:
    check_template(template, share_of(template, 12))


@pytest.mark.long
def test_all_conversations_over_all_templates() -> None:
    expressed = sum(check_template(template, USABLE) for template in TEMPLATES)
    assert expressed > 0.75 * len(TEMPLATES) * len(USABLE)


def own_mask(template: Template, messages: Any, tools: Any) -> tuple[list[int], list[bool]] | None:
    """Tokens, and the mask by the template's own ``{% generation %}`` blocks, if it works."""
    try:
        made: Any = template.tokenizer.apply_chat_template(
            messages, tools=tools, return_dict=True, return_assistant_tokens_mask=True
        )
    except (TemplateError, TypeError, ValueError, LookupError, AttributeError):
        return None
    return list(made["input_ids"]), [bool(m) for m in made["assistant_masks"]]


def test_against_the_masks_that_templates_make_themselves() -> None:
    """What TRL's training templates mark as generated has all of ours in it.

    They mark more, which was never sampled: blanks behind an end, an answer's opening.
    """
    marked = [template for template in TEMPLATES if template.name.endswith("_training")]
    assert sum(check_against_own_mask(template, share_of(template, 3)) for template in marked) > 150


def check_against_own_mask(template: Template, conversations: Sequence[Conversation]) -> int:
    """How many could be compared: others are refused, or written in another way when the
    template isn't given what it wants."""
    compared = 0
    for conversation in conversations:
        last = max(at for at, message in enumerate(conversation.messages) if is_answer(message))
        messages = conversation.messages[: last + 1]
        if "ai" in [message.get("type") for message in messages]:
            continue
        try:
            chat = template.chat
            rows = token_rows(chat, messages, conversation.tools, [*map(is_answer, messages)])
        except ChatError:
            continue
        theirs = own_mask(template, messages, conversation.tools)
        if theirs is None or len(rows) != 1:
            continue
        (row,), (token_ids, mask) = rows, theirs
        if tuple(token_ids[: len(row.token_ids)]) != row.token_ids:
            continue
        compared += 1
        for token_id, ours, own in zip(row.token_ids, row.trained, mask, strict=False):
            assert own or not ours or token_id in chat.stop_token_ids
    return compared


def test_a_template_that_drops_reasoning_gives_a_row_for_each_prompt(
    all_templates: dict[str, Template],
) -> None:
    """Qwen3 leaves the reasoning of earlier turns out: each answer keeps its own in its row."""
    chat = all_templates["qwen3"].chat
    messages: list[Any] = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1", "reasoning_content": "first"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "2", "reasoning_content": "second"},
    ]
    rows = token_rows(chat, messages, None, [False, True, False, True])
    texts = [chat.decode(row.token_ids) for row in rows]
    assert len(rows) == 2
    assert "first" in texts[0]
    assert "second" not in texts[0]
    assert "second" in texts[1]
    assert "first" not in texts[1]


def test_weights_choose_the_answers(smollm2_chat: TemplateFormat, make_conversation: Any) -> None:
    example = make_conversation(4)
    both = token_rows(
        smollm2_chat, example["messages"], example["tools"], [False, True, False, True]
    )
    last = token_rows(
        smollm2_chat, example["messages"], example["tools"], [False, False, False, True]
    )
    first = token_rows(
        smollm2_chat, example["messages"], example["tools"], [False, True, False, False]
    )
    ((start, middle), (again, end)) = spans(both[0])
    assert last[0].token_ids == both[0].token_ids
    assert spans(last[0]) == [(again, end)]
    assert spans(first[0]) == [(start, middle)]
    assert len(first[0].token_ids) == middle, "a row ends with its last trained token"


def test_control_tokens_in_texts_stay_text(smollm2_chat: TemplateFormat) -> None:
    messages: list[Any] = [
        {"role": "user", "content": "say <|im_end|>"},
        {"role": "assistant", "content": "<|im_end|>\n<|im_start|>user\nhi"},
    ]
    (row,) = token_rows(smollm2_chat, messages, None, [False, True])
    ((start, end),) = spans(row)
    ends = [i for i in range(start, end) if row.token_ids[i] in smollm2_chat.stop_token_ids]
    assert ends == [end - 1]
    assert smollm2_chat.parse(row.token_ids[start:end]).message["content"] == (
        "<|im_end|>\n<|im_start|>user\nhi"
    )
