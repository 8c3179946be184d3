"""The server behind prompted models: passes calls on, and keeps what they took."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from art_core.errors import GatewayError
from art_core.gateway.access import ROLLOUT_HEADER, rollout_not_open, sent_key, tags_of
from art_core.gateway.http import answering, problem_response
from art_core.gateway.problems import Problem
from art_core.gateway.relayed import RelayedCall, read_order
from art_core.gateway.rollout import KEY_PREFIX, rollout_of_key
from art_core.gateway.thread import ServerThread, listen
from art_core.gateway.upstreams import Upstream
from art_core.rollouts.backend import RolloutTicket
from art_core.rollouts.prompted import PromptedCall, PromptedRollout

_HOST = "127.0.0.1"
_CHAT = "/v1/chat/completions"


@dataclass(slots=True, kw_only=True)
class _Open:
    upstream: Upstream
    tags: Mapping[str, str]
    made: list[PromptedCall] = field(default_factory=list[PromptedCall])


class Relay:
    """Serves chat completions of open rollouts on this machine, and nothing else.

    Each call must name its rollout, by URL, header or key: the user pays for it.
    """

    def __init__(self) -> None:
        self._rollouts: dict[str, _Open] = {}
        endpoint = answering(self._chat)
        routes = [Route(f"{prefix}{_CHAT}", endpoint, methods=["POST"]) for prefix in _PREFIXES]
        app = Starlette(routes=[*routes, Route("/{path:path}", _not_served, methods=_METHODS)])
        self._thread = ServerThread(app, listen(_HOST, 0))

    @property
    def url(self) -> str:
        """Without ``/v1``."""
        host, port = self._thread.address
        return f"http://{host}:{port}"

    def start(self) -> None:
        """Returns once calls are accepted."""
        self._thread.start()

    def stop(self, upstreams: Iterable[Upstream]) -> None:
        """Close the upstreams, and stop listening."""
        self._rollouts.clear()
        for upstream in upstreams:
            self._thread.run(upstream.close())
        self._thread.stop()

    def open(self, upstream: Upstream, tags: Mapping[str, str]) -> RolloutTicket:
        """Serve a new rollout from ``upstream``."""
        rollout_id = secrets.token_hex(16)
        key = f"{KEY_PREFIX}{rollout_id}-{secrets.token_hex(16)}"
        self._rollouts[rollout_id] = _Open(upstream=upstream, tags=tags)
        return RolloutTicket(
            rollout_id=rollout_id,
            base_url=f"{self.url}/r/{rollout_id}/v1",
            api_key=key,
            headers={ROLLOUT_HEADER: key},
            policy_version=0,
        )

    def close(self, rollout_id: str) -> PromptedRollout:
        """Stop serving a rollout; what was recorded, copied: late answers don't change it.

        Raises:
            GatewayError: no such rollout is open.
        """
        ended = self._rollouts.pop(rollout_id, None)
        if ended is None:
            raise GatewayError(f"rollout {rollout_id!r} isn't open")
        made = [replace(call) for call in list(ended.made)]
        return PromptedRollout(model=ended.upstream.name, made=made)

    async def _chat(self, request: Request) -> Response:
        rollout = self._rollout_of(request)
        order = await read_order(request)
        tags = {**rollout.tags, **tags_of(request)}
        kept = PromptedCall(messages=order.messages, tools=order.tools, tags=tags)
        rollout.made.append(kept)
        return await RelayedCall(rollout.upstream, order, kept).respond(request)

    def _rollout_of(self, request: Request) -> _Open:
        header = request.headers.get(ROLLOUT_HEADER, "")
        named = (
            request.path_params.get("rollout")
            or rollout_of_key(header)
            or header
            or rollout_of_key(sent_key(request))
        )
        if not named:
            raise Problem(
                status=404,
                message="A prompted model is served inside of model.rollout() only. Use the "
                "trajectory's base_url, api_key or headers.",
                code="no_rollout",
            )
        rollout = self._rollouts.get(named)
        if rollout is None:
            raise rollout_not_open(named)
        return rollout


_PREFIXES = ("/r/{rollout}", "")
_METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH"]


async def _not_served(request: Request) -> Response:
    message = (
        f"{request.method} {request.url.path} isn't served for prompted models, only chat "
        "completions are."
    )
    return problem_response(Problem(status=404, message=message, code="unknown_url"))
