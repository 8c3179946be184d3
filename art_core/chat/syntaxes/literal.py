"""Regexes for what models write literally."""

from __future__ import annotations

from collections.abc import Callable

import regex


class Literal:
    """Regexes for literals in marked text."""

    def __init__(self, mark: Callable[[str], str]) -> None:
        self.text = mark

    def __call__(self, text: str) -> str:
        return regex.escape(self.text(text))
