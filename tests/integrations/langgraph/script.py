"""What every scripted model of these tests answers: directives in the last user message.

``[[call NAME {json}]]`` asks for a tool call, ``[[json {…}]]`` for that text;
anything else, and every tool result, is answered with ``ok`` and the marker
(``m<number>``) of the conversation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CALL = re.compile(r"\[\[call (\w+) (\{.*?\})\]\]", re.DOTALL)
JSON = re.compile(r"\[\[json (\{.*?\})\]\]", re.DOTALL)
MARKER = re.compile(r"\bm\d+\b")


@dataclass(frozen=True, slots=True)
class Reply:
    """A text, or a tool call."""

    text: str
    tool: str | None = None
    arguments: str = ""


def marker_of(text: str) -> str:
    found = MARKER.search(text)
    return found.group() if found else "m?"


def reply_to(role: str, text: str, marker: str) -> Reply:
    """The answer to a conversation that ends with ``text`` by ``role``."""
    if role == "user":
        if call := CALL.search(text):
            return Reply("", tool=call.group(1), arguments=call.group(2))
        if content := JSON.search(text):
            return Reply(content.group(1))
    return Reply(f"ok {marker}")
