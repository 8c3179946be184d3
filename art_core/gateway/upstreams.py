"""What answers the calls of prompted models: an OpenAI-compatible API, or a plug-in's.

A package serves `Model(litellm=…)` by naming a function ``(Model) -> Upstream`` under
the entry point group ``art_core.upstreams``, called ``litellm``. So the core needs no
litellm.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Protocol, cast

from art_core.errors import ConfigError, MissingExtraError
from art_core.rollouts.model import Model

ENTRY_POINT_GROUP = "art_core.upstreams"
LITELLM = "litellm"

Body = Mapping[str, Any]
"""A chat completion's request, as JSON, with ``messages`` and without ``model`` and ``stream``."""


class Upstream(Protocol):
    """Answers chat completions. Its calls raise `openai.APIError` and what inherits it."""

    @property
    def name(self) -> str:
        """What the model is called there."""
        ...

    async def answer(self, body: Body) -> dict[str, Any]:
        """A whole chat completion."""
        ...

    def stream(self, body: Body) -> AsyncGenerator[dict[str, Any]]:
        """Its chunks; the last says what was used, whether or not ``body`` asks for it."""
        ...

    def cost_usd(self, usage: Mapping[str, Any]) -> float | None:
        """The price of an answer that used so much; None: not known."""
        ...

    async def close(self) -> None:
        """Called once, in the event loop of the calls."""
        ...


Connect = Callable[[Model[Any]], Upstream]


def find_upstream(model: Model[Any]) -> Upstream:
    """What is to answer ``model``'s calls.

    Raises:
        MissingExtraError: it is named by litellm's string, and nothing installed serves those.
        ConfigError: the model doesn't say where it is.
    """
    if model.litellm is not None:
        return _litellm_connector()(model)
    if model.inference_base_url is None or model.inference_api_key is None:
        raise ConfigError(
            f"model {model.name!r} doesn't say what answers its calls",
            "Pass litellm= to Model(...), or inference_base_url= and inference_api_key=.",
        )
    return OpenAIUpstream(model)


def _litellm_connector() -> Connect:
    found = list(entry_points(group=ENTRY_POINT_GROUP, name=LITELLM))
    if not found:
        raise MissingExtraError(
            f"nothing installed serves Model(litellm=...): no entry point {LITELLM!r} in "
            f"{ENTRY_POINT_GROUP!r}",
            "Install: pip install 'art-core[litellm]'.",
        )
    return cast("Connect", found[0].load())


class OpenAIUpstream:
    """An OpenAI-compatible API. No prices are known of it."""

    def __init__(self, model: Model[Any]) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.get_inference_name()

    async def answer(self, body: Body) -> dict[str, Any]:
        answer = await self._chat().create(**self._arguments(body), stream=False)
        return answer.model_dump(exclude_unset=True)

    async def stream(self, body: Body) -> AsyncGenerator[dict[str, Any]]:
        async with await self._chat().create(**self._arguments(body), stream=True) as chunks:
            async for chunk in chunks:
                yield chunk.model_dump(exclude_unset=True)

    def cost_usd(self, usage: Mapping[str, Any]) -> float | None:
        del usage
        return None

    async def close(self) -> None:
        await self._model.openai_client().close()

    def _chat(self) -> Any:
        # The agent's own client retries; twice would be once too often.
        return self._model.openai_client().with_options(max_retries=0).chat.completions

    def _arguments(self, body: Body) -> dict[str, Any]:
        rest = {name: value for name, value in body.items() if name != "messages"}
        return {"model": self.name, "messages": body["messages"], "extra_body": rest}
