"""Every template × every conversation is rendered whole and read back, or refused by name."""

from __future__ import annotations

import pytest

from tests.art_core.chat.corpus import CONVERSATIONS, Conversation
from tests.art_core.chat.matrix import DOCUMENT, Cell, check, table, templates
from tests.art_core.chat.templates import Template

TEMPLATES = list(templates())


def selected(template: Template, share: int) -> list[Conversation]:
    """One in ``share`` conversations, others for each template."""
    offset = TEMPLATES.index(template)
    return [
        conversation
        for at, conversation in enumerate(CONVERSATIONS)
        if (at + offset) % share == 0 or conversation.refused is not None
    ]


def row(template: Template, conversations: list[Conversation]) -> dict[str, Cell]:
    cells = {conversation.name: check(template, conversation) for conversation in conversations}
    for conversation in conversations:
        if conversation.refused is not None:
            cell = cells[conversation.name]
            assert cell.outcome == "refused"
            assert conversation.refused in cell.reason
    return cells


@pytest.mark.parametrize("template", TEMPLATES, ids=str)
def test_a_share_of_the_conversations(template: Template) -> None:
    row(template, selected(template, share=8))


@pytest.mark.long
def test_all_of_them_as_documented() -> None:
    rows = {template: row(template, CONVERSATIONS) for template in TEMPLATES}
    assert DOCUMENT.read_text(encoding="utf-8") == table(rows)


def test_there_are_enough() -> None:
    assert len(CONVERSATIONS) >= 60
    assert len({conversation.name for conversation in CONVERSATIONS}) == len(CONVERSATIONS)
    assert sum(template.origin == "trl" for template in TEMPLATES) >= 72
