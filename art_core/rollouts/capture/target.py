"""Which requests are redirected to a rollout, and what becomes of them on the way."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from art_core.config import CaptureConfig
from art_core.rollouts.backend import LOOPBACK, RolloutTicket
from art_core.rollouts.capture.clients import DirectClients
from art_core.rollouts.route import TAGS_HEADER

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger(__name__)

_MODEL_PATHS = ("/chat/completions", "/completions", "/responses", "/v1/messages")
"""Ends of the paths of model calls; the last is Anthropic's, whose ``/v1`` keeps other
services' ``/messages`` apart."""

_DROPPED_HEADERS = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "api-key",
        "x-api-key",
        "x-goog-api-key",
        "openai-organization",
        "openai-project",
        "cookie",
        "host",
    }
)
"""What the agent would have shown to its own model's host: none of the gateway's business."""

_KEPT_EXTENSIONS = frozenset({"timeout", "trace"})


class Elsewhere(Enum):
    """A model call that isn't the policy's."""

    PASSES = "passes"


@dataclass(slots=True, kw_only=True)
class Capture:
    """What is captured for one open rollout, and what was seen."""

    ticket: RolloutTicket
    config: CaptureConfig
    policy_names: frozenset[str] | None
    """What the policy is called at the gateway; None: nothing else is served there."""
    clients: DirectClients = field(default_factory=DirectClients)
    redirected: int = 0
    """Calls sent to the rollout."""
    passed: Counter[str] = field(default_factory=Counter[str])
    """Model calls that went to hosts of their own, by host."""
    answered: list[JsonValue] = field(default_factory=list["JsonValue"])
    """What those were answered: ``host``, ``model``, ``status`` and ``answer``."""

    def path_of(self, request: httpx.Request) -> str | Elsewhere | None:
        """The path below the rollout's URL that ``request`` is to be sent to; None: leave it.

        `Elsewhere`: leave it, and note what it is answered.

        ``request`` isn't attributed already.
        """
        path = _model_path(request)
        if path is None:
            return None
        if self._is_gateway(request):
            names = self.policy_names
            return path if names is None or _model_of(request) in names else None
        if _is_listed(request.url, self.config.hosts):
            models = self.config.models
            if models is None or _model_of(request) in models:
                return path
        return self._pass(request)

    def keep_answer(self, request: httpx.Request, response: httpx.Response) -> None:
        """Note what a call that passed was answered; of a stream, only that there was one."""
        try:
            answer: JsonValue = response.json()
        except (ValueError, RuntimeError):  # not JSON; or ResponseNotRead, of either library
            answer = None
        self.answered.append(
            {
                "host": request.url.host,
                "model": _model_of(request),
                "status": response.status_code,
                "answer": answer,
            }
        )

    def is_attributed(self, request: httpx.Request) -> bool:
        """Whether the URL names a rollout, this one or another."""
        ours = type(request.url)(self.ticket.base_url)
        prefix = ours.path.partition("/r/")[0] + "/r/"
        return self._is_gateway(request) and request.url.path.startswith(prefix)

    def _pass(self, request: httpx.Request) -> Elsewhere:
        host = request.url.host
        self.passed[host] += 1
        if self.passed[host] == 1:
            logger.warning(
                "a model call to %s inside a rollout passes untouched: it isn't the policy's and "
                "isn't trained on. If it is the agent's model, add the host (and model) to the "
                "model's CaptureConfig; if it is a judge or helper, wrap it in art.untraced().",
                host,
            )
        return Elsewhere.PASSES

    def _is_gateway(self, request: httpx.Request) -> bool:
        ours = type(request.url)(self.ticket.base_url)
        return _address(request.url) == _address(ours)


def redirected_request(
    request: httpx.Request,
    ticket: RolloutTicket,
    path: str,
    *,
    tags: Mapping[str, str],
    timeout: Mapping[str, float | None],
) -> httpx.Request:
    """``request`` as a call of the ticket's rollout, with its key instead of the agent's own.

    ``timeout`` (the agent's client's) is for a request without one. The original
    request is left as it is.
    """
    query = f"?{request.url.query.decode('ascii')}" if request.url.query else ""
    url = type(request.url)(f"{ticket.base_url.rstrip('/')}{path}{query}")
    headers = [(k, v) for k, v in request.headers.multi_items() if k not in _DROPPED_HEADERS]
    headers += ticket.headers.items()
    headers.append(("authorization", f"Bearer {ticket.api_key}"))
    headers.append(("host", url.netloc.decode("ascii")))
    if tags:
        headers.append((TAGS_HEADER, json.dumps(dict(tags))))
    body: dict[str, Any] = (
        {"content": content} if (content := _content(request)) is not None
        else {"stream": request.stream}
    )  # fmt: skip
    return type(request)(
        request.method,
        url,
        headers=headers,
        extensions={"timeout": dict(timeout)}
        | {k: v for k, v in request.extensions.items() if k in _KEPT_EXTENSIONS},
        **body,
    )


def _model_path(request: httpx.Request) -> str | None:
    if request.method != "POST":
        return None
    path = request.url.path.rstrip("/")
    for ending in _MODEL_PATHS:
        if path.endswith(ending):
            return ending.removeprefix("/v1")
    return None


def _model_of(request: httpx.Request) -> str | None:
    """The model that the body asks for; None where there is no telling."""
    content = _content(request)
    try:
        body: object = json.loads(content) if content else None
    except ValueError:
        return None
    model: object = body.get("model") if isinstance(body, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return model if isinstance(model, str) else None


def _content(request: httpx.Request) -> bytes | None:
    """The body, if it is in memory (it is, unless the agent streams an upload)."""
    try:
        return request.content
    except RuntimeError:  # RequestNotRead, of either library
        return None


def _is_listed(url: httpx.URL, hosts: tuple[str, ...]) -> bool:
    host, port = _address(url)
    return url.host in hosts or host in hosts or f"{url.host}:{port}" in hosts


def _address(url: httpx.URL) -> tuple[str, int]:
    """Host and port, with the port that the scheme implies, and one name for loopback."""
    host = "localhost" if url.host in LOOPBACK else url.host
    return host, url.port or (443 if url.scheme == "https" else 80)
