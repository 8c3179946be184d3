# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The gateway's stream in the order in which litellm loses nothing of it."""

from __future__ import annotations

from typing import Any

from litellm.types.utils import ModelResponseStream

_OF_DELTA = ("content", "tool_calls", "reasoning_content", "refusal")


class StreamOrder:
    """litellm drops what comes after a finish reason: the usage, and other choices.

    So finish reasons are held back to the end. litellm itself knows one per stream; of
    several choices it is that of the first.
    """

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None
        self._reasons: dict[int, str] = {}

    def feed(self, chunk: dict[str, Any]) -> list[ModelResponseStream]:
        """What can go on of a chunk."""
        self._last = chunk
        self._usage = chunk.pop("usage", None) or self._usage
        kept: list[dict[str, Any]] = []
        for choice in chunk["choices"]:
            if reason := choice.get("finish_reason"):
                self._reasons[choice["index"]] = reason
                choice["finish_reason"] = None
            delta = choice["delta"]
            if delta.get("role") or choice.get("logprobs") or any(map(delta.get, _OF_DELTA)):
                kept.append(choice)
        return [_stream(chunk, kept)] if kept else []

    def finish(self) -> list[ModelResponseStream]:
        """The usage and the finish reason; nothing, if the stream broke off before."""
        if not self._reasons:
            return []
        ends: list[ModelResponseStream] = []
        if self._usage is not None:
            ends.append(self._chunk(None, usage=self._usage))
        ends.append(self._chunk(self._reasons[min(self._reasons)]))
        return ends

    def _chunk(self, reason: str | None, **more: Any) -> ModelResponseStream:
        choice = {"index": 0, "delta": {"content": ""}, "finish_reason": reason}
        return _stream(self._last | more, [choice])


def _stream(chunk: dict[str, Any], choices: list[dict[str, Any]]) -> ModelResponseStream:
    fields: dict[str, Any] = chunk | {"choices": choices}
    return ModelResponseStream(**fields)
