# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""The policy as a LangChain chat model, for graphs that say so themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any

import openai
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai.chat_models.base import BaseChatOpenAI
from pydantic import Field, SecretStr, SkipValidation

from art_core.errors import ConfigError
from art_core.rollouts import TrainableModel
from integrations.langgraph.tracker import POLICY_KEY

_UNREGISTERED = "http://unregistered.invalid/v1"


class PolicyChatModel(BaseChatOpenAI):
    """A chat model served by a policy's gateway, wherever that is at the time of the call.

    It can be built before the model is registered. Inside a rollout its calls
    belong to the rollout; outside, the newest version of the policy answers them.
    Structured output asks for a tool call unless told otherwise.
    """

    # Validated, a model of a parametrised class would be a copy, which nobody registers.
    policy: SkipValidation[TrainableModel[Any]] = Field(exclude=True, repr=False)

    @property
    def _llm_type(self) -> str:
        return "art-policy"

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        return {**payload, "model": self.policy.get_inference_name()}

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        self._find_gateway()
        return super()._generate(messages, stop, run_manager, **kwargs)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        self._find_gateway()
        return await super()._agenerate(messages, stop, run_manager, **kwargs)

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        self._find_gateway()
        yield from super()._stream(*args, **kwargs)

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        self._find_gateway()
        async for chunk in super()._astream(*args, **kwargs):
            yield chunk

    def _find_gateway(self) -> None:
        """Point the clients at the policy's gateway, which registering it made known."""
        url, key = self.policy.inference_base_url, self.policy.inference_api_key
        if url is None or key is None:
            raise ConfigError(
                f"model {self.policy.name!r} isn't registered, so nothing serves it",
                "First: await model.register(backend).",
            )
        for client in (self.root_client, self.root_async_client):
            client.base_url = url
            client.api_key = key


def chat_model(model: TrainableModel[Any], /, **options: Any) -> PolicyChatModel:
    """The policy of ``model`` as a LangChain `BaseChatModel`.

    Args:
        model: need not be registered before the first call.
        options: what `langchain_openai.ChatOpenAI` takes: ``temperature``,
            ``max_tokens``, ``timeout``, ``max_retries``, ``callbacks``, …

    Raises:
        ConfigError: ``options`` has one that the policy decides: ``model``,
            ``base_url`` or ``api_key``. (At a call: the model isn't registered.)
    """
    reserved = {"model", "model_name", "base_url", "openai_api_base", "api_key", "openai_api_key"}
    if taken := sorted(reserved & set(options)):
        raise ConfigError(
            f"chat_model() was given {', '.join(taken)}",
            "The policy decides which model answers, and where; leave it out.",
        )
    client, async_client = _connections()
    options.setdefault("http_client", client)
    options.setdefault("http_async_client", async_client)
    metadata = {**options.pop("metadata", {}), POLICY_KEY: model.name}
    return PolicyChatModel(
        policy=model,
        model=model.name,
        base_url=_UNREGISTERED,
        api_key=SecretStr("unregistered"),
        metadata=metadata,
        **options,
    )


@cache
def _connections() -> tuple[openai.DefaultHttpxClient, openai.DefaultAsyncHttpxClient]:
    """HTTP clients that keep no connection open, so that any event loop may use them and
    nobody needs to close them. (LangChain's own belong to the loop that used them first.)"""
    limits = type(openai.DEFAULT_CONNECTION_LIMITS)(
        max_connections=None, max_keepalive_connections=0
    )
    return openai.DefaultHttpxClient(limits=limits), openai.DefaultAsyncHttpxClient(limits=limits)
