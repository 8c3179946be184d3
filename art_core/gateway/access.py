"""Who is calling? Keys, and which rollout a request belongs to."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import compare_digest

from pydantic import ConfigDict, TypeAdapter, ValidationError
from starlette.requests import Request

from art_core.engines.protocol import AdapterRef
from art_core.errors import UnknownModelError
from art_core.gateway.policy import Policy, version_of
from art_core.gateway.problems import Problem, invalid
from art_core.gateway.registry import Registry
from art_core.gateway.rollout import OpenRollout, rollout_of_key
from art_core.rollouts.route import TAGS_HEADER

_log = logging.getLogger(__name__)

ROLLOUT_HEADER = "x-art-rollout"
"""Names a rollout, by its id or by the key that was minted for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """What serves a request, and what it is recorded under."""

    policy: Policy
    adapter: AdapterRef | None
    rollout: OpenRollout | None
    """None: quarantined."""
    tags: Mapping[str, str]

    @property
    def version(self) -> int:
        return version_of(self.adapter)


class Door:
    """Lets requests in, and says which rollout they belong to: never by guess.

    The rollout is named by the URL (``/r/<rollout>/v1``), else by the header
    ``x-art-rollout``, else by the API key. A request that names none is served by
    the policy that it asks for, and quarantined.
    """

    def __init__(self, registry: Registry, api_key: str | None) -> None:
        self._registry = registry
        self._api_key = api_key
        self._reported: set[str] = set()

    def admit(self, request: Request) -> OpenRollout | None:
        """The open rollout that a request belongs to, if it names one.

        Raises:
            Problem: 404, the rollout isn't open; 401, the key is wrong.
        """
        key = sent_key(request)
        header = request.headers.get(ROLLOUT_HEADER, "")
        rollout_id = (
            request.path_params.get("rollout")
            or rollout_of_key(header)
            or header
            or rollout_of_key(key)
        )
        rollout = self._registry.rollout(rollout_id) if rollout_id else None
        if rollout_id and (rollout is None or rollout.closed):
            raise rollout_not_open(rollout_id)
        minted = "" if rollout is None else rollout.key
        if self._api_key is not None and not any(
            compare_digest(sent.encode(), known.encode())
            for sent in (key, header)
            for known in (self._api_key, minted)
            if sent and known
        ):
            raise Problem(
                status=401,
                message="The API key is missing or wrong. Send the gateway's key, or the one "
                "minted for the rollout, as 'Authorization: Bearer <key>'.",
                code="invalid_api_key",
            )
        return rollout

    def caller(self, request: Request, model: str) -> Caller:
        """Who a request for ``model`` is served by and recorded under.

        Inside a rollout any model name is served by its policy.

        Raises:
            Problem: as `admit`, or 404 where there is no such model.
        """
        rollout = self.admit(request)
        tags = tags_of(request)
        if rollout is not None:
            return Caller(
                policy=rollout.policy,
                adapter=rollout.adapter,
                rollout=rollout,
                tags={**rollout.tags, **tags},
            )
        try:
            policy, adapter = self._registry.resolve(model)
        except UnknownModelError as error:
            raise Problem(
                status=404, message=str(error), code="model_not_found", param="model"
            ) from error
        self._report(policy)
        return Caller(policy=policy, adapter=adapter, rollout=None, tags=tags)

    def _report(self, policy: Policy) -> None:
        """Say once that a call during a policy's rollouts belongs to none of them."""
        if policy.name in self._reported:
            return
        if any(rollout.policy is policy for rollout in self._registry.rollouts()):
            self._reported.add(policy.name)
            _log.warning(
                "a call to %r names no rollout while rollouts are open: it is answered, recorded "
                "apart and never trained on (/health counts such calls). Threads started inside "
                "a rollout don't inherit it: give their client the trajectory's base_url and "
                "api_key.",
                policy.name,
            )


def rollout_not_open(rollout_id: str) -> Problem:
    return Problem(
        status=404,
        message=f"Rollout {rollout_id!r:.80} is not open: it was closed, or never opened here. "
        "Calls made after a rollout has ended belong to no rollout and are not served.",
        code="rollout_not_open",
    )


def sent_key(request: Request) -> str:
    """The API key in a request's headers; empty if there is none."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return request.headers.get("x-api-key", "")  # as Anthropic's clients send it


_TAGS = TypeAdapter(dict[str, str], config=ConfigDict(strict=True))


def tags_of(request: Request) -> dict[str, str]:
    """The names that a framework adapter gave the call.

    Raises:
        Problem: 400, they can't be read.
    """
    header = request.headers.get(TAGS_HEADER)
    if header is None:
        return {}
    try:
        return _TAGS.validate_json(header)
    except ValidationError as error:
        raise invalid(
            TAGS_HEADER, f"must be a JSON object of strings, got {header!r:.100}"
        ) from error
