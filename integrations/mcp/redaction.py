"""Secrets that were given to a server don't come back out of it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from urllib.parse import quote

from pydantic import JsonValue

_DISTINCTIVE = 8
"""Characters from which on a value is looked for inside words, too."""
_SHORTEST = 4
"""Shorter values ("1", "yes") are no secrets and would be found everywhere."""


class Redactor:
    """Replaces secret values in text: as they are, and as JSON, URLs and base64 spell them."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._labels = {
            spelling: label
            for label, value in secrets.items()
            if len(value) >= _SHORTEST
            for spelling in _spellings(value)
        }
        longest_first = sorted(self._labels, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_pattern, longest_first))) if self._labels else None

    def __call__(self, text: str) -> str:
        """The text with ``[secret NAME]`` in place of each secret."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: f"[secret {self._labels[found.group()]}]", text)

    def json(self, value: JsonValue) -> JsonValue:
        """The same for all texts in a JSON value, keys included."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, list):
            return [self.json(item) for item in value]
        if isinstance(value, dict):
            return {self(key): self.json(item) for key, item in value.items()}
        return value


def _spellings(value: str) -> set[str]:
    return {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(value, safe=""),
        quote(value),
        base64.b64encode(value.encode()).decode(),
        base64.urlsafe_b64encode(value.encode()).decode(),
    }


def _pattern(spelling: str) -> str:
    exact = re.escape(spelling)
    return exact if len(spelling) >= _DISTINCTIVE else rf"(?<!\w){exact}(?!\w)"
