"""What an endpoint is: one table makes the routes and the OpenAPI document."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from art_core import __version__
from art_core.backends.remote_api import ErrorAnswer
from art_core.errors import (
    AccessDeniedError,
    ArtError,
    ConfigError,
    LimitExceededError,
    RunLockedError,
    RunMismatchError,
    ServerError,
    StorageError,
    TrajectoryError,
    UnknownCompletionError,
    UnknownModelError,
)
from art_core.gateway.http import JsonResponse
from art_core.server.keys import KeyRecord
from art_core.server.queue import error_body

BodyT = TypeVar("BodyT", bound=BaseModel)
_BODY_SECONDS = 60.0
"""In which a body must have arrived."""
_SCHEMAS = "#/components/schemas/{model}"


@dataclass(slots=True)
class Refusal(Exception):
    """A request that is answered with an error."""

    status: int
    error: ArtError
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose key has been checked."""

    request: Request
    key: KeyRecord
    content: bytes

    def param(self, name: str) -> str:
        return str(self.request.path_params[name])

    def body(self, kind: type[BodyT]) -> BodyT:
        """Raises ConfigError: names what is wrong with the body."""
        try:
            return kind.model_validate_json(self.content)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False)[0]
            where = ".".join(str(part) for part in found["loc"]) or "the body"
            raise ConfigError(
                f"{where}: {found['msg']}, got {found['input']!r:.100}",
                "See the OpenAPI document, /art/v1/openapi.json.",
            ) from error


Handler = Callable[[Call], Awaitable[BaseModel | Response]]
Authenticate = Callable[[Request], KeyRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    method: str
    path: str
    summary: str
    handler: Handler
    answer: type[BaseModel] | None
    """None: server-sent events."""
    body: type[BaseModel] | None = None
    status: int = 200
    max_body_bytes: int = 2**20
    key_header: bool = False
    """Takes an idempotency key."""
    errors: tuple[int, ...] = ()
    """Besides those of every endpoint."""

    def route(self, authenticate: Authenticate) -> Route:
        async def answer(request: Request) -> Response:
            try:
                key = authenticate(request)
                content = await read_body(request, self.max_body_bytes) if self.body else b""
                result = await self.handler(Call(request, key, content))
            except Exception as error:  # noqa: BLE001  (each becomes an answer, and is named in it)
                return refuse(error)
            if isinstance(result, Response):
                return result
            return JsonResponse(result, status_code=self.status)

        return Route(self.path, answer, methods=[self.method])


_STATUS: list[tuple[type[ArtError], int]] = [
    (AccessDeniedError, 403),
    (LimitExceededError, 429),
    (UnknownModelError, 404),
    (UnknownCompletionError, 404),
    (TrajectoryError, 422),
    (RunMismatchError, 409),
    (RunLockedError, 409),
    (ConfigError, 400),
    (StorageError, 507),
]


def refuse(error: Exception) -> Response:
    """How an exception is answered."""
    headers: dict[str, str] = {}
    if isinstance(error, Refusal):
        status, headers, error = error.status, error.headers, error.error
    elif isinstance(error, ClientDisconnect):
        status = 400
    else:
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
    return JsonResponse(ErrorAnswer(error=error_body(error)), status_code=status, headers=headers)


async def read_body(request: Request, limit: int) -> bytes:
    """The request's body.

    Raises:
        Refusal: 413, it is larger than ``limit``; 408, it takes too long to come.
    """
    close = {"connection": "close"}
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    problem = f"the body has more than {limit} bytes"
                    raise Refusal(413, ConfigError(problem), close)
                parts.append(part)
    except TimeoutError as error:
        problem = f"the body didn't arrive within {_BODY_SECONDS:g} s"
        raise Refusal(408, ServerError(problem), close) from error
    return b"".join(parts)


def openapi(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the endpoints."""
    kinds = {kind for e in endpoints for kind in (e.body, e.answer) if kind} | {ErrorAnswer}
    names = sorted(kinds, key=lambda kind: kind.__name__)
    schemas, definitions = models_json_schema(
        [(kind, "validation") for kind in names], ref_template=_SCHEMAS
    )
    refs = {kind: schemas[kind, "validation"] for kind in names}
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, refs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "art serve",
            "version": __version__,
            "description": "Training over HTTP. Models are called at /v1, as OpenAI's API.",
        },
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _operation(endpoint: Endpoint, refs: dict[type[BaseModel], Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)", endpoint.path)
    ]
    if endpoint.key_header:
        parameters.append(
            {
                "name": "idempotency-key",
                "in": "header",
                "required": True,
                "description": "The same key again is the same request, not another one.",
                "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,200}$"},
            }
        )
    content = (
        {"text/event-stream": {"schema": {"type": "string"}}}
        if endpoint.answer is None
        else {"application/json": {"schema": refs[endpoint.answer]}}
    )
    error = {"application/json": {"schema": refs[ErrorAnswer]}}
    common = (400, 401, 403, 408, 413, 429, 500, 503)
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": {
            str(endpoint.status): {"description": "Done", "content": content},
            **{
                str(status): {"description": "Refused", "content": error}
                for status in sorted({*common, *endpoint.errors})
            },
        },
    }
    if endpoint.body is not None:
        body = {"application/json": {"schema": refs[endpoint.body]}}
        operation["requestBody"] = {"required": True, "content": body}
    return operation
