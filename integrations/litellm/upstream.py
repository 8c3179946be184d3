# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What answers the calls of ``art.Model(litellm="openai/gpt-4.1")``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from art_core.errors import ConfigError, MissingExtraError
from art_core.rollouts.model import Model

_MOST_AT_ONCE = 256


class LiteLLMUpstream:
    """A model of any of litellm's providers, with litellm's prices.

    The agent's own client retries, so litellm doesn't; and nothing is cached. litellm is
    called in threads: its asynchronous calls share a worker that is bound to one event
    loop, and that of the agent's own calls isn't ours. So a whole answer whose client
    hangs up is finished, unseen.

    Raises:
        BadRequestError: litellm has no such provider.
    """

    def __init__(self, name: str, api_base: str | None, api_key: str | None) -> None:
        import litellm

        self.name = name
        self._where = {"api_base": api_base, "api_key": api_key}
        self._model, self._provider, *_ = litellm.get_llm_provider(name, api_base=api_base)
        self._threads = ThreadPoolExecutor(_MOST_AT_ONCE, thread_name_prefix="art-litellm")

    async def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._in_thread(lambda: self._complete(body, stream=False))
        return _as_openai_sends(answer)

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        chunks = await self._in_thread(lambda: self._complete(body, stream=True))
        try:
            while (chunk := await self._in_thread(lambda: next(chunks, None))) is not None:
                yield _as_openai_sends(chunk)
        finally:
            chunks.close()

    def cost_usd(self, usage: Mapping[str, Any]) -> float | None:
        import litellm

        priced = self._name_with_price()
        if priced is None:
            return None
        # It knows the prices of cached and of reasoning tokens, too.
        prompt, completion = litellm.cost_per_token(
            model=priced,
            custom_llm_provider=self._provider,
            prompt_tokens=usage.get("prompt_tokens") or 0,
            completion_tokens=usage.get("completion_tokens") or 0,
            usage_object=litellm.Usage(**usage),
        )
        return prompt + completion

    def _name_with_price(self) -> str | None:
        import litellm

        for name in (self.name, f"{self._provider}/{self._model}"):
            if name in litellm.model_cost:
                return name
        # A bare name is one provider's: others may serve a model of that name, too.
        entry = litellm.model_cost.get(self._model, {})
        mine = str(entry.get("litellm_provider", "")).startswith(self._provider)
        return self._model if mine else None

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _complete(self, body: Mapping[str, Any], *, stream: bool) -> Any:
        import litellm

        once: dict[str, Any] = {"num_retries": 0, "max_retries": 0, "caching": False}
        arguments = {"model": self.name, **body, **self._where, **once, "stream": stream}
        return litellm.completion(**arguments)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _as_openai_sends(answer: Any) -> dict[str, Any]:
    """Without litellm's many fields that are null, but with those that are null in the API."""
    data: dict[str, Any] = answer.model_dump(mode="json", exclude_none=True)
    for choice in data["choices"]:
        choice.setdefault("finish_reason", None)
        if "message" in choice:
            choice["message"].setdefault("content", None)
    return data


def connect(model: Model[Any]) -> LiteLLMUpstream:
    """Entry point ``litellm`` of ``art_core.upstreams``. Imports litellm, which takes seconds.

    Raises:
        MissingExtraError: litellm isn't installed.
        ConfigError: litellm has no such provider.
    """
    try:
        from litellm.exceptions import BadRequestError
    except ImportError as error:
        raise MissingExtraError(
            "litellm isn't installed", "Install: pip install 'art-core[litellm]'."
        ) from error
    name = model.litellm or model.name
    try:
        return LiteLLMUpstream(name, model.inference_base_url, model.inference_api_key)
    except BadRequestError as error:
        raise ConfigError(
            f"litellm knows no provider for the model {name!r}",
            "Write 'provider/model', 'openai/gpt-4.1' for instance.",
        ) from error
