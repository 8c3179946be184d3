"""The ASGI application: who is calling, and which project's part answers."""

from __future__ import annotations

import time

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from art_core.backends.remote_api import PREFIX
from art_core.errors import AccessDeniedError, LimitExceededError, ServerError
from art_core.gateway import ROLLOUT_HEADER
from art_core.gateway.http import JsonResponse, problem_response
from art_core.gateway.problems import Problem
from art_core.gateway.rollout import rollout_of_key
from art_core.server.api import Api
from art_core.server.endpoints import Refusal, openapi, refuse
from art_core.server.keys import KeyRecord, KeyStore
from art_core.server.meter import Meter, current_key
from art_core.server.project import Project
from art_core.server.tenants import Tenants

OPENAPI_PATH = f"{PREFIX}/openapi.json"


class Application:
    """``/art/v1`` and ``/health`` are answered here; all else by the project's gateway."""

    def __init__(self, keys: KeyStore, meter: Meter, tenants: Tenants) -> None:
        self._keys = keys
        self._meter = meter
        self._tenants = tenants
        endpoints = Api(tenants).endpoints()
        document = openapi(endpoints)

        async def describe(_: Request) -> Response:
            return JsonResponse(document)

        self._api: ASGIApp = Starlette(
            routes=[
                Route("/health", self._health, methods=["GET"]),
                Route(OPENAPI_PATH, describe, methods=["GET"]),
                *(endpoint.route(self._authenticate) for endpoint in endpoints),
            ],
            exception_handlers={HTTPException: _unknown_route},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == "/health" or path.startswith(f"{PREFIX}/"):
            await self._api(scope, receive, send)
            return
        try:
            app = await self._gateway(scope)
        except Refusal as refusal:
            answer = problem_response(
                Problem(
                    status=refusal.status,
                    message=str(refusal.error),
                    code=type(refusal.error).__name__,
                    headers=refusal.headers,
                )
            )
            await answer(scope, receive, send)
        else:
            await app(scope, receive, send)

    async def _gateway(self, scope: Scope) -> ASGIApp:
        """The app that answers; the scope's key is made the gateway's own."""
        headers = Headers(scope=scope)
        sent = _sent_key(headers)
        rollout = self._rollout_of(scope["path"], headers, sent)
        record = self._keys.find(sent)
        if rollout is not None:
            opened = self._tenants.rollouts[rollout]
            opened.used_at = time.monotonic()
            project, key = opened.project, opened.key
        elif record is not None:
            project, key = await self._tenants.project(record.project), record
        else:
            raise _no_key()
        self._tenants.check_accepting()
        self._check_limits(key)
        current_key.set(key)
        if record is not None and record.project == project.name:
            _replace_key(scope, project)
        return project.gateway.app

    def _rollout_of(self, path: str, headers: Headers, sent: str) -> str | None:
        """The open rollout that the request names by URL, header or key."""
        parts = path.split("/", 3)
        header = headers.get(ROLLOUT_HEADER, "")
        named = parts[2] if path.startswith("/r/") and len(parts) > 2 else None
        found = named or rollout_of_key(header) or header or rollout_of_key(sent)
        return found if found in self._tenants.rollouts else None

    def _authenticate(self, request: Request) -> KeyRecord:
        key = self._keys.find(_sent_key(request.headers))
        if key is None:
            raise _no_key()
        wait = self._meter.request(key)
        if wait:
            raise _too_fast(key, wait)
        return key

    def _check_limits(self, key: KeyRecord) -> None:
        wait = self._meter.request(key)
        if wait:
            raise _too_fast(key, wait)
        try:
            self._meter.check_tokens(key)
        except LimitExceededError as error:
            raise Refusal(429, error) from error

    async def _health(self, _: Request) -> Response:
        ready = self._tenants.accepting
        status = "ok" if ready else "starting or stopping"
        return JsonResponse({"status": status}, status_code=200 if ready else 503)


def _sent_key(headers: Headers) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


def _replace_key(scope: Scope, project: Project) -> None:
    own = (b"authorization", f"Bearer {project.gateway.secret}".encode())
    others = [pair for pair in scope["headers"] if pair[0] not in (b"authorization", b"x-api-key")]
    scope["headers"] = [*others, own]


def _no_key() -> Refusal:
    error = AccessDeniedError(
        "the API key is missing, wrong or revoked",
        "Send a key made by 'art keys create' as 'Authorization: Bearer <key>'.",
    )
    return Refusal(401, error, {"www-authenticate": "Bearer"})


def _too_fast(key: KeyRecord, wait: float) -> Refusal:
    error = LimitExceededError(
        f"key {key.name!r} may send {key.limits.requests_per_minute} requests a minute",
        "Send them slower, or have the limit raised.",
    )
    return Refusal(429, error, {"retry-after": str(max(1, round(wait)))})


async def _unknown_route(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    problem = ServerError(f"{request.method} {request.url.path!r:.200} isn't served here")
    return refuse(Refusal(status, problem, headers))
