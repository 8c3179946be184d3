"""The prompted models of a backend: one relay for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from art_core.errors import ConfigError
from art_core.rollouts.backend import RolloutTicket
from art_core.rollouts.model import Model
from art_core.rollouts.prompted import PromptedRollout

if TYPE_CHECKING:
    from art_core.gateway.relay import Relay
    from art_core.gateway.upstreams import Upstream


class PromptedModels:
    """Opens and closes their rollouts."""

    def __init__(self) -> None:
        self._relay: Relay | None = None
        self._upstreams: dict[tuple[str, str], Upstream] = {}

    async def add(self, model: Model[Any]) -> None:
        """Serve a model, if it says what answers its calls.

        Raises:
            MissingExtraError: it needs a package that isn't installed.
            ConfigError: that package doesn't know the model.
        """
        if model.litellm is None and model.inference_base_url is None:
            return
        from art_core.gateway.relay import Relay
        from art_core.gateway.upstreams import find_upstream

        upstream = await asyncio.to_thread(find_upstream, model)
        if self._relay is None:
            relay = Relay()
            relay.start()
            self._relay = relay
        self._upstreams[model.project, model.name] = upstream

    def open(self, model: Model[Any], tags: Mapping[str, str] | None) -> RolloutTicket:
        """See `ServesPrompted.open_prompted`."""
        upstream = self._upstreams.get((model.project, model.name))
        if upstream is None or self._relay is None:
            raise ConfigError(
                f"model {model.name!r} of project {model.project!r} can't be played: nothing "
                "answers its calls",
                "Pass litellm= to Model(...), or inference_base_url= and inference_api_key=, "
                "before registering it.",
            )
        return self._relay.open(upstream, tags or {})

    def close_rollout(self, rollout_id: str) -> PromptedRollout:
        """See `ServesPrompted.close_prompted`."""
        if self._relay is None:
            raise ConfigError(
                f"rollout {rollout_id!r} isn't open", "The backend was closed during it."
            )
        return self._relay.close(rollout_id)

    async def stop(self) -> None:
        """Stop serving."""
        relay, self._relay = self._relay, None
        upstreams, self._upstreams = self._upstreams, {}
        if relay is not None:
            await asyncio.to_thread(relay.stop, list(upstreams.values()))
