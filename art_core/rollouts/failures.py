"""Rollouts that fail: shown when they do, counted, and too many of them an error."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from pathlib import Path
from types import TracebackType

from art_core.errors import ConfigError, TooManyFailuresError

logger = logging.getLogger(__name__)


class Failures:
    """The failed rollouts of one gather.

    ``allowed`` is a number of failures (int) or a share of the rollouts (float up
    to 1.0). That all fail is never allowed: there is nothing to go on with.
    """

    def __init__(self, total: int, allowed: int | float) -> None:
        if (
            isinstance(allowed, bool)
            or not allowed >= 0
            or (isinstance(allowed, float) and allowed > 1)
        ):
            raise ConfigError(
                f"max_exceptions is {allowed!r}",
                "It is a number of failures (int, from 0) or a share of them (float, 0.0 to 1.0).",
            )
        self._total = total
        self._allowed = allowed if isinstance(allowed, int) else allowed * total
        self._described = f"{allowed}" if isinstance(allowed, int) else f"{allowed:.0%}"
        self._kinds: Counter[tuple[str, ...]] = Counter()
        self._first: Exception | None = None

    @property
    def count(self) -> int:
        return self._kinds.total()

    def add(self, error: Exception) -> None:
        """Count a failure; it is logged with its traceback if it is the first of its kind.

        Raises:
            TooManyFailuresError: more failed than are allowed, or all.
        """
        kind = _kind(error)
        self._kinds[kind] += 1
        self._first = self._first or error
        if self._kinds[kind] == 1:
            logger.warning("a rollout failed", exc_info=(type(error), error, _own_frames(error)))
        if self.count > self._allowed:
            self._stop(f"max_exceptions allows {self._described}")
        if self.count == self._total:
            self._stop("none is left to go on with")

    def summary(self) -> str | None:
        """How many failed, and of what; None if none did."""
        if not self.count:
            return None
        kinds = ", ".join(f"{n} x {kind[0]}" for kind, n in self._kinds.most_common())
        return f"{self.count} of {self._total} rollouts failed: {kinds}"

    def _stop(self, reason: str) -> None:
        first = traceback.format_exception_only(self._first)[0].strip()
        raise TooManyFailuresError(
            f"{self.summary()}; {reason}. The first was {first}",
            "Its traceback is above. Mend the agent, or allow more with max_exceptions.",
        ) from self._first


def _kind(error: Exception) -> tuple[str, ...]:
    """Failures of one kind have the same type and were raised at the same line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return type(error).__name__, where


def _own_frames(error: Exception) -> TracebackType | None:
    """The traceback from where the agent's code begins; all of it if that is nowhere."""
    ours = str(Path(__file__).parent)
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(ours):
        frame = frame.tb_next
    return frame or error.__traceback__
