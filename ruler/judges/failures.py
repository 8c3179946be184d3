"""What a failed call to a judge model means: wait, give up on this question, or stop."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, cast

from art_core.errors import JudgeError, JudgeSetupError
from ruler.judges.model import RetryLater

if TYPE_CHECKING:
    from openai import APIError

_PASSING = {408, 409, 425, 429}
_SETUP = {401, 402, 403, 404}


def failure(error: APIError, judge: str) -> RetryLater | JudgeError:
    """The exception to raise for one of the openai client's (litellm's are of the same kind)."""
    from openai import APIConnectionError

    status = getattr(error, "status_code", None)
    said = f"{judge} answered {status}: {error.message[:500]}"
    if status in _SETUP or _code(error) == "insufficient_quota":
        return JudgeSetupError(said, "Check the judge's model name, API key, URL and quota.")
    if isinstance(error, APIConnectionError):  # timeouts too
        return RetryLater(f"{judge} can't be reached: {error.message[:500]}")
    if status is None or status in _PASSING or status >= 500:
        return RetryLater(said, _asked_to_wait(error))
    return JudgeError(
        said,
        "If it refuses response_format, set structured='json' or 'none'; "
        "if the prompt is too long for it, lower max_chars.",
    )


def _code(error: APIError) -> object:
    """The provider's own code; litellm keeps it only in the body."""
    body = error.body
    return cast("dict[str, object]", body).get("code") if isinstance(body, dict) else None


def _asked_to_wait(error: APIError) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None)
    value = headers.get("retry-after") if headers is not None else None
    if not isinstance(value, str):
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
