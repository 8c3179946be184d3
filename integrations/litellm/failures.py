# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""The gateway's errors as litellm's exceptions."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import openai
from litellm.exceptions import (
    APIConnectionError,
    APIError,
    AuthenticationError,
    BadRequestError,
    ContextWindowExceededError,
    InternalServerError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitError,
    ServiceUnavailableError,
    Timeout,
    UnprocessableEntityError,
)

from art_core.errors import ConfigError

_BY_STATUS: dict[int, type[Exception]] = {
    400: BadRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    408: Timeout,
    422: UnprocessableEntityError,
    429: RateLimitError,
    500: InternalServerError,
    503: ServiceUnavailableError,
}
_PROVIDER = "art"


@contextmanager
def litellm_errors(model: str) -> Generator[None]:
    """Raises what litellm's users catch: its class for the status, with the gateway's message."""
    try:
        yield
    except ConfigError as error:
        raise BadRequestError(str(error), model, _PROVIDER) from error
    except openai.APIStatusError as error:
        raise _of_status(error, model) from error
    except openai.APITimeoutError as error:
        raise Timeout(str(error), model, _PROVIDER) from error
    except openai.APIConnectionError as error:
        reason = error.__cause__ or error
        raise APIConnectionError(
            f"{reason} (is {error.request.url.host} the server of this model?)", _PROVIDER, model
        ) from error


def _of_status(error: openai.APIStatusError, model: str) -> Exception:
    kind: Any = _BY_STATUS.get(error.status_code)
    if error.code == "context_length_exceeded":
        kind = ContextWindowExceededError
    message = _message(error)
    if kind is None:
        return APIError(error.status_code, message, _PROVIDER, model)
    if kind is PermissionDeniedError or kind is UnprocessableEntityError:
        response: Any = error.response
        return kind(message, _PROVIDER, model, response)
    failure = kind(message, model=model, llm_provider=_PROVIDER)
    # litellm's retries wait for as long as this header of the response says.
    failure.response = error.response
    return failure


def _message(error: openai.APIStatusError) -> str:
    """The gateway's own words, without the repetition that the client puts around them."""
    body = error.body
    message = cast("dict[str, Any]", body).get("message") if isinstance(body, dict) else None
    return str(message or error)
