"""Completions over HTTP, for event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

import httpx
from pydantic_core import from_json

from art_core.engines.vllm.api import headers_of, message_of
from art_core.errors import (
    AdapterError,
    ContextLengthError,
    EngineError,
    EngineOverloadedError,
    GrammarError,
)

_CONNECT_SECONDS = 10.0
_DATA = "data: "
_DONE = "[DONE]"


class Interrupted(EngineError):
    """The server went away, or lost what the request needs: it may be sent again."""


class CompletionClient:
    """May be used from several event loops at a time."""

    def __init__(self, *, api_key: str | None, trust_env: bool) -> None:
        self._headers = headers_of(api_key)
        self._trust_env = trust_env
        self._lock = threading.Lock()
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            WeakKeyDictionary()
        )

    async def stream(self, url: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """The events of a streamed completion.

        Raises:
            Interrupted: the stream didn't come to its end.
            EngineError: the request was refused; see `_refusal`.
        """
        async with self._post(url, body) as response:
            async for line in response.aiter_lines():
                if not line.startswith(_DATA):
                    continue
                data = line[len(_DATA) :]
                if data == _DONE:
                    return
                event: dict[str, Any] = from_json(data)
                if "error" in event:
                    raise Interrupted(f"vLLM broke a completion off: {event['error']!s:.300}")
                yield event
        raise Interrupted("vLLM ended a stream early")

    async def whole(self, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """A completion that isn't streamed; raises as `stream` does."""
        async with self._post(url, body) as response:
            return from_json(await response.aread())

    @asynccontextmanager
    async def _post(self, url: str, body: Mapping[str, Any]) -> AsyncGenerator[httpx.Response]:
        try:
            async with self._client().stream(
                "POST", f"{url}/v1/completions", json=body
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise _refusal(response, body)
                yield response
        except (httpx.TransportError, ValueError) as error:
            if isinstance(error, EngineError):
                raise
            raise Interrupted(f"no whole answer from vLLM: {error!r}") from error

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._clients:
                # Nothing is kept open between requests: it would outlive the loop.
                self._clients[loop] = httpx.AsyncClient(
                    headers=self._headers,
                    timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
                    trust_env=self._trust_env,
                )
            return self._clients[loop]


def _refusal(response: httpx.Response, body: Mapping[str, Any]) -> EngineError:
    status, said = response.status_code, message_of(response)
    if status >= 500:
        return Interrupted(f"vLLM answered {status}: {said}")
    if status == 404:
        return LostAdapter(f"vLLM doesn't know {body['model']}: {said}")
    if status == 429:
        return EngineOverloadedError(f"vLLM is overloaded: {said}")
    if status == 400 and "structured_outputs" in body and "rammar" in said:
        return GrammarError(f"the grammar can't be used: {said}")
    if status == 400 and ("context length" in said or "max_model_len" in said):
        return ContextLengthError(f"vLLM: {said}", "Shorten the prompt or lower max_tokens.")
    return EngineError(f"vLLM refused a request with {status}: {said}")


class LostAdapter(Interrupted, AdapterError):
    """The server was started again, or somebody unloaded it."""
