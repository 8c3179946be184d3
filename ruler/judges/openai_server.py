"""Any server that speaks OpenAI's chat API: vLLM, Ollama, llama.cpp, our own gateway, a vendor."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import httpx
from pydantic import JsonValue

from art_core.errors import JudgeSetupError
from art_core.trajectories import Message
from ruler.judges.failures import failure
from ruler.judges.model import Price, Reply, Structured, response_format


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIServer:
    """A judge behind an OpenAI-compatible URL."""

    base_url: str
    """With its ``/v1``, as for the openai client."""
    model: str
    api_key: str = field(default="none", repr=False)
    params: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """More fields of the request: ``temperature``, ``max_tokens``, ``reasoning_effort``, …"""
    structured: Structured = "schema"
    price: Price | None = None

    @property
    def name(self) -> str:
        return f"{self.model} at {self.base_url}"

    @property
    def identity(self) -> Mapping[str, JsonValue]:
        return {
            "kind": "openai",
            "base_url": self.base_url,
            "model": self.model,
            "params": dict(self.params),
            "structured": self.structured,
        }

    async def reply(self, messages: Sequence[Message], schema: Mapping[str, JsonValue]) -> Reply:
        from openai import APIError, AsyncOpenAI, DefaultAsyncHttpxClient

        fields: dict[str, JsonValue] = dict(self.params)
        if (form := response_format(self.structured, schema)) is not None:
            fields["response_format"] = form
        # A client of its own for each call: judging takes seconds, and a shared one would
        # be bound to one event loop and have to be closed by somebody.
        async with AsyncOpenAI(
            base_url=self.base_url,
            api_key=self.api_key,
            max_retries=0,
            timeout=None,
            http_client=DefaultAsyncHttpxClient(verify=_certificates()),
        ) as client:
            try:
                completion = await client.chat.completions.create(
                    model=self.model,
                    messages=cast("Any", list(messages)),
                    extra_body=fields,
                )
            except APIError as error:
                raise failure(error, self.name) from error
        return read_completion(completion, self.name, self.price)


@cache
def _certificates() -> ssl.SSLContext:
    """Read once: it takes 25 ms."""
    return httpx.create_ssl_context()


def read_completion(completion: Any, judge: str, price: Price | None) -> Reply:
    """A `Reply` from a chat completion of the openai client or of litellm.

    Raises:
        JudgeSetupError: what answered isn't a chat API.
    """
    try:
        choice = completion.choices[0]
        message, finish = choice.message, choice.finish_reason
    except (AttributeError, IndexError, TypeError) as error:
        raise JudgeSetupError(
            f"{judge} answered without a choice: {completion!r:.200}",
            "The URL must be that of an OpenAI-compatible chat API, usually ending in /v1.",
        ) from error
    text = message.content if isinstance(message.content, str) else ""
    problem = None
    if refusal := getattr(message, "refusal", None):
        problem = f"it is a refusal ({refusal!r:.200})"
    elif finish == "length":
        problem = "it was cut off by the token limit: be shorter"
    elif not text:
        problem = f"it is empty (finish reason {finish!r})"
    usage = completion.usage
    prompt = int(getattr(usage, "prompt_tokens", None) or 0)
    sampled = int(getattr(usage, "completion_tokens", None) or 0)
    return Reply(
        text=text,
        prompt_tokens=prompt,
        completion_tokens=sampled,
        cost_usd=None if price is None else price.of(prompt, sampled),
        problem=problem,
    )
