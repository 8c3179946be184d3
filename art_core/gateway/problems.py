"""Errors as an OpenAI client expects them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from art_core.errors import (
    AdapterError,
    ArtError,
    ChatError,
    ConfigError,
    ContextLengthError,
    EngineDiedError,
    EngineOverloadedError,
    GrammarError,
    StorageError,
)


@dataclass(slots=True, kw_only=True)
class Problem(Exception):
    """A request that is answered with an error; never leaves the gateway."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def type(self) -> str:
        return _TYPES.get(self.status, "invalid_request_error")

    def body(self) -> dict[str, Any]:
        """In OpenAI's shape."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
    507: "server_error",
}

_RETRY_SOON = {"retry-after": "1"}

_KINDS: list[tuple[type[ArtError], int, str, Mapping[str, str]]] = [
    (ContextLengthError, 400, "context_length_exceeded", {}),
    (ChatError, 400, "invalid_messages", {}),
    (EngineOverloadedError, 429, "engine_overloaded", _RETRY_SOON),
    (EngineDiedError, 503, "engine_died", {}),
    (GrammarError, 400, "invalid_grammar", {}),
    (AdapterError, 404, "model_not_found", {}),
    (StorageError, 507, "storage_error", {}),
    (ConfigError, 400, "invalid_value", {}),
]


def problem_of(error: ArtError) -> Problem:
    """How an error of ours is answered."""
    for kind, status, code, headers in _KINDS:
        if isinstance(error, kind):
            return Problem(status=status, message=str(error), code=code, headers=headers)
    return Problem(status=500, message=str(error), code="server_error")


def invalid(param: str, message: str, code: str = "invalid_value") -> Problem:
    """A 400 that names the field."""
    return Problem(status=400, message=f"{param}: {message}", param=param, code=code)


def not_json(why: str) -> Problem:
    return Problem(status=400, message=f"The request's body isn't JSON: {why}", code="invalid_json")


def problem_of_validation(error: ValidationError, body: bytes) -> Problem:
    """The first thing that is wrong with a request's body."""
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return not_json(first["msg"])
    if first["type"] == "missing":
        return invalid(_path(first["loc"]), "is missing", "missing_required_parameter")
    path = _path(_within(from_json(body), first["loc"]))
    if not path:
        return Problem(status=400, message="The body isn't a JSON object.", code="invalid_type")
    return invalid(path, f"{first['msg']}, got {first['input']!r:.100}", "invalid_type")


def _within(value: Any, location: tuple[int | str, ...]) -> Iterator[int | str]:
    """The part of a location that is in ``value``; behind it pydantic names types."""
    for part in location:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return
        yield part


def _path(location: Iterable[int | str]) -> str:
    """``messages[0].role`` of ``("messages", 0, "role")``."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path
