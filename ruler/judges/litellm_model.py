"""Any model that LiteLLM knows, by its string: ``openai/gpt-4.1``, ``ollama/qwen3``, ….

litellm is imported at the first question, in a thread, because that takes seconds.
At import it fetches its table of prices unless ``LITELLM_LOCAL_MODEL_COST_MAP=True``
is in the environment; that choice stays the user's.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import JsonValue

from art_core.errors import JudgeSetupError, MissingExtraError
from art_core.trajectories import Message
from ruler.judges.failures import failure
from ruler.judges.model import Price, Reply, Structured, response_format
from ruler.judges.openai_server import read_completion


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteLLMModel:
    """A judge that LiteLLM calls."""

    model: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More arguments of ``litellm.acompletion``: ``temperature``, ``api_base``, …"""
    structured: Structured | None = None
    """None: ``schema`` for models that LiteLLM says take schemas, else ``none``."""
    price: Price | None = None
    """None: as LiteLLM's table has it."""

    @property
    def name(self) -> str:
        return self.model

    @property
    def identity(self) -> Mapping[str, JsonValue]:
        return {
            "kind": "litellm",
            "model": self.model,
            "params": {key: repr(value) for key, value in self._answering_params().items()},
            "structured": self.structured,
        }

    def _answering_params(self) -> dict[str, Any]:
        """Without secrets, which don't change answers and have no place in a key."""
        return {key: value for key, value in self.params.items() if key != "api_key"}

    async def reply(self, messages: Sequence[Message], schema: Mapping[str, JsonValue]) -> Reply:
        litellm = await asyncio.to_thread(_import_litellm)
        from openai import APIError

        self._check_name(litellm)
        arguments = dict(self.params)
        structured = self.structured
        if structured is None:
            known = litellm.supports_response_schema(model=self.model)
            structured = "schema" if known else "none"
        if (form := response_format(structured, schema)) is not None:
            arguments["response_format"] = form
        try:
            completion = await litellm.acompletion(
                model=self.model,
                messages=list(messages),
                num_retries=0,
                max_retries=0,
                caching=False,
                **arguments,
            )
        except APIError as error:
            raise failure(error, self.name) from error
        reply = read_completion(completion, self.name, self.price)
        return reply if self.price else replace(reply, cost_usd=_cost(completion))

    def _check_name(self, litellm: Any) -> None:
        try:
            litellm.get_llm_provider(self.model, api_base=self.params.get("api_base"))
        except litellm.BadRequestError as error:
            raise JudgeSetupError(
                f"litellm knows no provider for the judge {self.model!r}",
                "Write 'provider/model', 'openai/gpt-4.1' for instance.",
            ) from error


def _cost(completion: Any) -> float | None:
    cost = completion._hidden_params.get("response_cost")  # documented by LiteLLM as the way to it
    return float(cost) if isinstance(cost, int | float) else None


def _import_litellm() -> Any:
    try:
        return importlib.import_module("litellm")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "judges named by a string need litellm, which isn't installed",
            "pip install 'art-core[litellm]', or use ruler.OpenAIServer(base_url=…, model=…).",
        ) from error
