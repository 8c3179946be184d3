"""Which server a call of ``art/…`` goes to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from art_core.errors import ConfigError
from art_core.rollouts.route import current_router

BASE_URL_VARIABLE = "ART_BASE_URL"
API_KEY_VARIABLE = "ART_API_KEY"
_NO_KEY = "none"
"""For a gateway on this machine, which asks for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    base_url: str
    """With ``/v1``."""
    api_key: str


def find_address(
    base_url: str | None, api_key: str | None, *, registered: tuple[str | None, str | None]
) -> Address:
    """The server of a call: its own, its rollout's, the registered one, the environment's.

    Raises:
        ConfigError: none of them names a server, or one isn't an http URL.
    """
    own_url, own_key = registered
    key = api_key or own_key or os.environ.get(API_KEY_VARIABLE) or _NO_KEY
    if base_url:
        return Address(base_url=check_base_url("api_base", base_url), api_key=key)
    if gateway := _gateway_of_this_rollout():
        return Address(base_url=gateway, api_key=key)
    if own_url:
        return Address(base_url=own_url, api_key=key)
    if named := os.environ.get(BASE_URL_VARIABLE):
        return Address(base_url=check_base_url(BASE_URL_VARIABLE, named), api_key=key)
    raise ConfigError(
        "no server is known for the models art/…",
        f"Make the call inside model.rollout(), set {BASE_URL_VARIABLE}, or pass base_url= to "
        "integrations.litellm.register() or api_base= to the call.",
    )


def check_base_url(name: str, url: str) -> str:
    """The URL without a trailing slash.

    Raises:
        ConfigError: it isn't an http URL; ``name`` says where it comes from.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"{name} {url!r:.200} isn't an http URL", "It looks like http://host:port/v1."
        )
    return url.rstrip("/")


def _gateway_of_this_rollout() -> str | None:
    """Its plain URL: the capture then attributes the call, if it is the policy's."""
    router = current_router.get()
    ticket = router().ticket if router is not None else None
    if ticket is None:
        return None
    return ticket.base_url.partition("/r/")[0] + "/v1"
