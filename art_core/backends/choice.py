"""Which engine the user asked for; plain data, no heavy imports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from art_core.errors import ConfigError

if TYPE_CHECKING:
    from art_core.engines.vllm import VllmOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """An engine and what was said about it.

    Raises:
        ConfigError: the parts don't go together.
    """

    name: Literal["embedded", "vllm"] = "embedded"
    url: str | None = None
    """Of a vLLM server that runs already."""
    vllm: VllmOptions | None = None
    deterministic: bool = False

    def __post_init__(self) -> None:
        if self.name not in ("embedded", "vllm"):
            raise ConfigError(f"engine is {self.name!r}", "There are 'embedded' and 'vllm'.")
        if self.name == "embedded" and (self.url is not None or self.vllm is not None):
            given = "url" if self.url is not None else "vllm"
            raise ConfigError(f"{given} is set and engine is 'embedded'", "Set engine='vllm'.")
        if self.name == "vllm" and self.deterministic:
            raise ConfigError("deterministic is set and engine is 'vllm'", "Only 'embedded' can.")
        if self.vllm is not None:
            self.vllm.check(attached=self.url is not None)
