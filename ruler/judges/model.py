"""What a judge model is: messages in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from pydantic import JsonValue

from art_core.trajectories import Message

Structured = Literal["schema", "json", "none"]
"""How a server is told the form of the answer: by JSON schema (`response_format`
``json_schema``), as any JSON object (``json_object``), or by the prompt alone. The
answer is checked all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A model's answer."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    """None: the price isn't known."""
    problem: str | None = None
    """Why ``text`` isn't a whole answer: a refusal, or cut off by a token limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US$ for a million tokens."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6


class RetryLater(Exception):
    """The server is busy, failing or out of reach: the same call may succeed later."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason, after)
        self.reason = reason
        self.after = after
        """Seconds that the server asks to wait."""


@runtime_checkable
class JudgeModel(Protocol):
    """A language model that can be asked."""

    @property
    def name(self) -> str:
        """To show."""
        ...

    @property
    def identity(self) -> Mapping[str, JsonValue]:
        """All that its answers depend on, apart from the question: part of the cache's key."""
        ...

    async def reply(self, messages: Sequence[Message], schema: Mapping[str, JsonValue]) -> Reply:
        """Answer, in the form of ``schema`` if it can be told to.

        Raises:
            RetryLater: see there.
            JudgeSetupError: it can never answer: wrong key, no such model.
            JudgeError: it can't answer this: too long, filtered.
        """
        ...


def response_format(
    structured: Structured, schema: Mapping[str, JsonValue]
) -> dict[str, JsonValue] | None:
    """OpenAI's ``response_format`` parameter."""
    if structured == "schema":
        described: dict[str, JsonValue] = {"name": "answer", "strict": True, "schema": dict(schema)}
        return {"type": "json_schema", "json_schema": described}
    return {"type": "json_object"} if structured == "json" else None
