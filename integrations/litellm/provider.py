# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportMissingTypeArgument=false, reportIncompatibleMethodOverride=false
"""The provider: litellm's calls as calls of the gateway."""

from __future__ import annotations

import functools
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httpx
import litellm
import openai
from litellm import ModelResponse
from litellm.litellm_core_utils.llm_response_utils.convert_dict_to_response import (
    convert_to_model_response_object,
)
from litellm.llms.custom_llm import CustomLLM
from litellm.types.utils import ModelResponseStream
from pydantic import BaseModel

from art_core.rollouts.backend import LOOPBACK
from integrations.litellm.address import Address, find_address
from integrations.litellm.failures import litellm_errors
from integrations.litellm.streams import StreamOrder

_NOT_THE_GATEWAYS = frozenset({"max_retries", "stream", "stream_options", "extra_body"})
"""litellm retries by itself; the rest is put together here."""


class ArtProvider(CustomLLM):
    """Serves ``art/…`` from the gateway that `find_address` finds."""

    def __init__(self, base_url: str | None = None, api_key: str | None = None) -> None:
        super().__init__()
        self._registered = (base_url, api_key)

    def completion(self, **call: Any) -> ModelResponse:
        with litellm_errors(call["model"]):
            order = self._order(call)
            with order.client() as client:
                answer = client.chat.completions.create(**order.arguments, stream=False)
        return _response(order.named(answer), call["model_response"])

    async def acompletion(self, **call: Any) -> ModelResponse:
        with litellm_errors(call["model"]):
            order = self._order(call)
            async with order.async_client() as client:
                answer = await client.chat.completions.create(**order.arguments, stream=False)
        return _response(order.named(answer), call["model_response"])

    def streaming(self, **call: Any) -> Iterator[ModelResponseStream]:
        with litellm_errors(call["model"]):
            order, chunks = self._order(call), StreamOrder()
            with (
                order.client() as client,
                client.chat.completions.create(**order.arguments, **_STREAMED) as stream,
            ):
                for chunk in stream:
                    yield from chunks.feed(order.named(chunk))
                yield from chunks.finish()

    async def astreaming(self, **call: Any) -> AsyncIterator[ModelResponseStream]:
        with litellm_errors(call["model"]):
            order, chunks = self._order(call), StreamOrder()
            async with (
                order.async_client() as client,
                await client.chat.completions.create(**order.arguments, **_STREAMED) as stream,
            ):
                async for chunk in stream:
                    for part in chunks.feed(order.named(chunk)):
                        yield part
                for part in chunks.finish():
                    yield part

    def _order(self, call: Mapping[str, Any]) -> _Order:
        address = find_address(call["api_base"], call["api_key"], registered=self._registered)
        asked: dict[str, Any] = call["optional_params"]
        _price(call["model"])
        body = {name: value for name, value in asked.items() if name not in _NOT_THE_GATEWAYS}
        if not body.get("echo"):  # litellm sends what text completions leave at its default
            body.pop("echo", None)
        return _Order(
            address,
            {
                "model": call["model"],
                "messages": call["messages"],
                "extra_body": body | (asked.get("extra_body") or {}),
                "extra_headers": call["headers"] or None,
                "timeout": call["timeout"],
            },
        )


_STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


@dataclass(frozen=True, slots=True)
class _Order:
    """Where a call goes, and the arguments of the openai client for it."""

    address: Address
    arguments: dict[str, Any]

    def client(self) -> AbstractContextManager[Any]:
        http = openai.DefaultHttpxClient(**self._connection())
        return openai.OpenAI(http_client=http, **self._options())

    def async_client(self) -> AbstractAsyncContextManager[Any]:
        http = openai.DefaultAsyncHttpxClient(**self._connection())
        return openai.AsyncOpenAI(http_client=http, **self._options())

    def named(self, answer: BaseModel) -> dict[str, Any]:
        """The answer with the name that litellm knows the model by, for its prices and logs."""
        return answer.model_dump() | {"model": _litellm_name(self.arguments["model"])}

    def _options(self) -> dict[str, Any]:
        return {
            "base_url": self.address.base_url,
            "api_key": self.address.api_key,
            "max_retries": 0,
        }

    def _connection(self) -> dict[str, Any]:
        # One client per call: litellm's callers come from any event loop and thread, and
        # nobody would close a longer-lived one. No proxy leads to this machine.
        near = urlsplit(self.address.base_url).hostname in LOOPBACK
        return {"verify": _tls(), "trust_env": not near}


@functools.cache
def _tls() -> ssl.SSLContext:
    """One for all: reading the certificates takes far longer than the rest of a client."""
    return httpx.create_ssl_context()


_PRICES = ("input_cost_per_token", "output_cost_per_token")


def _litellm_name(model: str) -> str:
    return f"art/{model}"


def _price(model: str) -> None:
    """Nothing, unless the user has given litellm a price for it."""
    free = dict.fromkeys(_PRICES, 0.0)
    # Not register_model, which warns of a model that litellm doesn't know.
    litellm.model_cost.setdefault(
        _litellm_name(model), {**free, "litellm_provider": "art", "mode": "chat"}
    )


def _response(answer: dict[str, Any], into: ModelResponse) -> ModelResponse:
    response = convert_to_model_response_object(
        response_object=answer, model_response_object=into, response_type="completion"
    )
    return cast("ModelResponse", response)


art = ArtProvider()
"""For a proxy's ``custom_provider_map``: takes its server from the environment."""
