"""Stop strings in text that comes piece by piece."""

from __future__ import annotations

from collections.abc import Sequence

from art_core.chat.vocabulary import Vocabulary


class StopStrings:
    """Passes text on up to a stop string; holds back what may begin one."""

    def __init__(self, stop: Sequence[str], vocabulary: Vocabulary) -> None:
        # A control token as a stop string ends the message, and so do words that look like it.
        spelled = {text: text for text in stop} | {vocabulary.mark(text): text for text in stop}
        self._stop = {needle: text for needle, text in spelled.items() if needle}
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str) -> str:
        if self.found is not None:
            return ""
        text = self._held + text
        hits = [(at, stop) for stop in self._stop if (at := text.find(stop)) >= 0]
        if hits:
            at, needle = min(hits)
            self.found = self._stop[needle]
            self._held = ""
            return text[:at]
        keep = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How many last characters of ``text`` are the first of ``stop``."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
