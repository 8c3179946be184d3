"""A call as Anthropic's Messages API answers it: one message, or its events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, cast

from art_core.chat.protocol import Delta
from art_core.gateway.call import Call
from art_core.gateway.http import as_problem, named_event
from art_core.gateway.messages_input import Block, blocks_of_message, tool_use
from art_core.gateway.problems import Problem
from art_core.trajectories import COMPLETION_ID_FIELD, Completion

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessagesAnswer:
    """A call as an assistant message of content blocks."""

    def __init__(self, call: Call, model: str) -> None:
        self._call = call
        self._model = model

    def whole(self, completions: Sequence[Completion]) -> dict[str, Any]:
        (completion,) = completions
        ending = self._ending(completion)
        return {
            **self._message(blocks_of_message(completion.response)),
            **ending["delta"],
            "usage": ending["usage"],
            COMPLETION_ID_FIELD: completion.id,
        }

    async def events(self) -> AsyncIterator[bytes]:
        """The events of a streamed message."""
        blocks = _Blocks()
        try:
            yield _event("message_start", message=self._message([]))
            async for piece in self._call.pieces():
                for event in blocks.add(piece.delta):
                    yield event
            (completion,) = await self._call.completions()
        except Exception as error:  # noqa: BLE001  (becomes an event that clients raise)
            yield named_event("error", error_body(as_problem(error)))
            return
        for event in blocks.close():
            yield event
        ending = self._ending(completion)
        yield _event("message_delta", **ending, **{COMPLETION_ID_FIELD: completion.id})
        yield _event("message_stop")

    def _message(self, content: list[Block]) -> dict[str, Any]:
        return {
            "id": f"msg_{self._call.id}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(0),
            "policy_version": self._call.caller.version,
        }

    def _ending(self, completion: Completion) -> dict[str, Any]:
        reason = _STOP_REASONS[completion.finish_reason]
        stopped_by = self._call.choices[0].stopped_by
        if stopped_by is not None:
            reason = "stop_sequence"
        return {
            "delta": {"stop_reason": reason, "stop_sequence": stopped_by},
            "usage": self._usage(len(completion.completion_token_ids)),
        }

    def _usage(self, sampled: int) -> dict[str, int]:
        return {"input_tokens": len(self._call.prompt.token_ids), "output_tokens": sampled}


class _Blocks:
    """Content blocks as they grow, one after the other."""

    def __init__(self) -> None:
        self._index = -1
        self._open: str | None = None

    def add(self, delta: Delta) -> Iterator[bytes]:
        if delta.reasoning:
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            yield from self._in_block("thinking", empty)
            yield self._delta({"type": "thinking_delta", "thinking": delta.reasoning})
        if delta.content:
            yield from self._in_block("text", {"type": "text", "text": "", "citations": None})
            yield self._delta({"type": "text_delta", "text": delta.content})
        for call in delta.tool_calls:
            yield from self.close()
            yield from self._in_block("tool_use", tool_use(call))
            arguments = cast("Block", call["function"])["arguments"]
            yield self._delta({"type": "input_json_delta", "partial_json": arguments})
            yield from self.close()

    def close(self) -> Iterator[bytes]:
        if self._open is not None:
            self._open = None
            yield _event("content_block_stop", index=self._index)

    def _in_block(self, kind: str, empty: Block) -> Iterator[bytes]:
        if self._open == kind:
            return
        yield from self.close()
        self._open = kind
        self._index += 1
        yield _event("content_block_start", index=self._index, content_block=empty)

    def _delta(self, delta: Block) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)


def error_body(problem: Problem) -> dict[str, Any]:
    """An error in Anthropic's shape."""
    kinds = {404: "not_found_error", 429: "rate_limit_error", 413: "request_too_large"}
    kind = "api_error" if problem.status >= 500 else kinds.get(problem.status, problem.type)
    return {"type": "error", "error": {"type": kind, "message": problem.message}}


def _event(kind: str, **fields: Any) -> bytes:
    return named_event(kind, {"type": kind, **fields})
