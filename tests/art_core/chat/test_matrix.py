"""Every template × every conversation is rendered whole and read back, or refused by name."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.art_core.chat.corpus import CONVERSATIONS, Conversation
from tests.art_core.chat.matrix import (
    DOCUMENT,
    LETTERS,
    Cell,
    check,
    conversation_numbers,
    dialect,
    introduction,
    said,
    table,
    templates,
)
from tests.art_core.chat.templates import Template

TEMPLATES = list(templates())
LINES = DOCUMENT.read_text(encoding="utf-8").splitlines()
_GRID_AT = LINES.index("```text") + 1
GRID = dict(line.split() for line in LINES[_GRID_AT : LINES.index("```", _GRID_AT)])
"""The letters of each template, as documented."""
OUTCOMES = {letter: outcome for outcome, letter in LETTERS.items()}


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
    """One pair in eight is as documented, and so are its template and its refusal."""
    cells = row(template, selected(template, share=8))
    documented = dict(zip((each.name for each in CONVERSATIONS), GRID[str(template)], strict=True))
    assert {name: documented[name] for name in cells} == {
        name: LETTERS[cell.outcome] for name, cell in cells.items()
    }
    assert dialect(template) in LINES
    for name, cell in cells.items():
        if cell.outcome == "refused":
            assert is_documented(name, template, cell.reason)


def is_documented(name: str, template: Template, reason: str) -> bool:
    """Whether the table of refusals has this one."""
    rows = [line.removeprefix("| ").split(" | ", maxsplit=2) for line in LINES]
    return any(
        f", {name}, " in f", {names}, " and {"all", str(template)} & set(where.split(", "))
        for names, where, error in (row for row in rows if len(row) == 3)
        if error == f"{said(reason)} |"
    )


def test_the_document_counts_what_it_shows() -> None:
    """The other seven pairs are checked by the long test below."""
    counts = Counter(OUTCOMES[letter] for letters in GRID.values() for letter in letters)
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text.startswith(introduction(len(GRID), counts))
    assert list(GRID) == [str(template) for template in TEMPLATES]
    assert "\n".join(conversation_numbers()) in text


@pytest.mark.long
def test_all_of_them_as_documented() -> None:
    rows = {template: row(template, CONVERSATIONS) for template in TEMPLATES}
    assert DOCUMENT.read_text(encoding="utf-8") == table(rows)


def test_there_are_enough() -> None:
    assert len(CONVERSATIONS) >= 60
    assert len({conversation.name for conversation in CONVERSATIONS}) == len(CONVERSATIONS)
    assert sum(template.origin == "trl" for template in TEMPLATES) >= 72
