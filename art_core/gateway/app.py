"""The gateway's routes."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from art_core.gateway.access import Door
from art_core.gateway.bodies import Bodies
from art_core.gateway.chat_completions import ChatCompletions
from art_core.gateway.http import ErrorBody, Handler, answering, problem_response
from art_core.gateway.messages import Messages
from art_core.gateway.messages_answer import error_body
from art_core.gateway.models import Health, Models
from art_core.gateway.problems import Problem
from art_core.gateway.registry import Registry
from art_core.gateway.responses import Responses
from art_core.gateway.text_completions import TextCompletions

_ROLLOUT = "/r/{rollout}"


def build_app(registry: Registry, *, api_key: str | None, max_body_bytes: int) -> Starlette:
    """The ASGI application. Every route is there twice: plain, and under ``/r/<rollout>``."""
    door = Door(registry, api_key)
    bodies = Bodies(door, registry, max_body_bytes)
    models = Models(door, registry)
    routes = [
        *_both("/v1/chat/completions", ChatCompletions(door, bodies).__call__, "POST"),
        *_both("/v1/completions", TextCompletions(door, bodies).__call__, "POST"),
        *_both("/v1/responses", Responses(door, bodies).__call__, "POST"),
        *_both("/v1/messages", Messages(door, bodies).__call__, "POST", error_body),
        *_both("/v1/models", models.list, "GET"),
        *_both("/v1/models/{model:path}", models.one, "GET"),
        *_both("/health", Health(door, registry).__call__, "GET"),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _unknown_route})


def _both(
    path: str, handler: Handler, method: str, error_body: ErrorBody = Problem.body
) -> list[Route]:
    endpoint = answering(handler, error_body)
    return [Route(prefix + path, endpoint, methods=[method]) for prefix in (_ROLLOUT, "")]


async def _unknown_route(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = f"{request.method} {request.url.path} isn't served here."
    return problem_response(Problem(status=status, message=message, code="unknown_url"))
