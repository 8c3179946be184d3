"""``/v1/models`` and ``/health``."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from art_core.gateway.access import Door
from art_core.gateway.http import JsonResponse
from art_core.gateway.policy import version_of
from art_core.gateway.problems import Problem
from art_core.gateway.registry import Registry


class Models:
    """Lists what can be asked for: each policy, and each of its versions."""

    def __init__(self, door: Door, registry: Registry) -> None:
        self._door = door
        self._registry = registry
        self._created = int(time.time())

    async def list(self, request: Request) -> Response:
        rollout = self._door.admit(request)
        policies = self._registry.policies() if rollout is None else [rollout.policy]
        names = [name for policy in policies for name in policy.model_names()]
        return JsonResponse({"object": "list", "data": [self._model(name) for name in names]})

    async def one(self, request: Request) -> Response:
        name = request.path_params["model"]
        self._door.caller(request, name)  # knows it, or raises
        return JsonResponse(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "art-core"}


class Health:
    """Says whether calls can be served. Details are for those who have the key."""

    def __init__(self, door: Door, registry: Registry) -> None:
        self._door = door
        self._registry = registry

    async def __call__(self, request: Request) -> Response:
        policies = self._registry.policies()
        dead = {each.name: each.engine_error for each in policies if each.engine_error}
        answer: dict[str, Any] = {"status": "engine_died" if dead else "ok"}
        try:
            self._door.admit(request)
        except Problem:
            return JsonResponse(answer, status_code=503 if dead else 200)
        rollouts = self._registry.rollouts()
        answer |= {
            "engine_errors": dead,
            "policies": {each.name: version_of(each.current) for each in policies},
            "open_rollouts": len(rollouts),
            "calls_in_rollouts": sum(len(each.calls) for each in rollouts),
            "quarantined": sum(each.quarantined for each in policies),
        }
        return JsonResponse(answer, status_code=503 if dead else 200)
