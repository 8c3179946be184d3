# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Puts the provider ``art/`` into litellm."""

from __future__ import annotations

from typing import Any

from art_core.errors import MissingExtraError
from integrations.litellm.address import check_base_url

PROVIDER = "art"


def register(base_url: str | None = None, api_key: str | None = None) -> None:
    """Teach litellm the models ``art/<name>``, ``art/<project>/<name>``, ``art/<name>@<step>``.

    ``base_url`` and ``api_key`` are the server's (``http://gpu-box:7999/v1``). Where they
    aren't given, calls inside a rollout go to its gateway; others to ``ART_BASE_URL`` with
    ``ART_API_KEY``. ``api_base`` and ``api_key`` of a call come before all. Registering
    again replaces these settings.

    Imports litellm, which takes seconds, and fetches its price list from the network
    unless ``LITELLM_LOCAL_MODEL_COST_MAP=True`` is in the environment.

    Raises:
        MissingExtraError: litellm isn't installed.
        ConfigError: ``base_url`` isn't an http URL.
    """
    if base_url is not None:
        check_base_url("base_url", base_url)
    try:
        import litellm
        from litellm.utils import custom_llm_setup
    except ImportError as error:
        raise MissingExtraError(
            "litellm isn't installed", "Install: pip install 'art-core[litellm]'."
        ) from error
    from integrations.litellm.provider import ArtProvider

    others: list[Any] = [
        item for item in litellm.custom_provider_map if item["provider"] != PROVIDER
    ]
    ours = {"provider": PROVIDER, "custom_handler": ArtProvider(base_url, api_key)}
    litellm.custom_provider_map = [*others, ours]
    custom_llm_setup()
