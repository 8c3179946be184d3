"""The Responses API's input as chat messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from art_core.gateway.problems import invalid
from art_core.trajectories import Message, Tool

Item = dict[str, Any]


def messages_of_input(items: str | Sequence[Item]) -> list[Message]:
    """Input items as messages.

    What one response put out (reasoning, text, function calls) is one assistant
    message again.

    Raises:
        Problem: an item that has no meaning to a text model; names it.
    """
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    messages: list[Message] = []
    turn = _Turn()
    for index, item in enumerate(items):
        kind = item.get("type", "message")
        where = f"input[{index}]"
        if kind == "function_call":
            turn.add_call(item)
        elif kind == "reasoning":
            turn = turn.next_if(turn.has_output, messages)
            turn.reasoning += _reasoning(item)
        elif kind == "message" and item.get("role") == "assistant":
            turn = turn.next_if(turn.has_output, messages)
            turn.content = item.get("content")
            turn.has_output = True
        elif kind == "message":
            turn = turn.next_if(True, messages)
            messages.append({"role": item.get("role"), "content": item.get("content")})
        elif kind == "function_call_output":
            turn = turn.next_if(True, messages)
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": item.get("call_id"),
                    "content": item.get("output"),
                }
            )
        else:
            raise invalid(where, f"items of type {kind!r:.80} can't be given to a text model")
    turn.next_if(True, messages)
    return messages


def items_of_message(message: Message) -> list[Item]:
    """An assistant message as the output items that it is, without ids and status."""
    items: list[Item] = []
    if message.get("reasoning_content"):
        text = {"type": "reasoning_text", "text": message["reasoning_content"]}
        items.append({"type": "reasoning", "summary": [], "content": [text]})
    if message.get("content"):
        text = {"type": "output_text", "text": message["content"], "annotations": []}
        items.append({"type": "message", "role": "assistant", "content": [text]})
    for call in cast("list[dict[str, Any]]", message.get("tool_calls") or []):
        function = call["function"]
        items.append(
            {
                "type": "function_call",
                "call_id": call["id"],
                "name": function["name"],
                "arguments": function["arguments"],
            }
        )
    return items


def chat_tools(tools: Sequence[Item] | None) -> list[Tool] | None:
    """Function tools in the Chat API's form.

    Raises:
        Problem: a tool that runs at OpenAI, which nothing here can run.
    """
    for index, tool in enumerate(tools or []):
        if tool.get("type") != "function":
            raise invalid(
                f"tools[{index}]",
                f"tools of type {tool.get('type')!r:.80} run at OpenAI; only functions can be used",
            )
    return [
        {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}
        for tool in tools or []
    ] or None


class _Turn:
    """An assistant message that is being put together."""

    def __init__(self) -> None:
        self.reasoning = ""
        self.content: Any = None
        self.calls: list[dict[str, Any]] = []
        self.has_output = False

    def add_call(self, item: Item) -> None:
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        self.calls.append({"id": item.get("call_id"), "type": "function", "function": function})
        self.has_output = True

    def next_if(self, ended: bool, messages: list[Message]) -> _Turn:
        """Another turn if this one has ended; then its message is added, unless it is empty."""
        if not ended:
            return self
        if self.has_output:
            message: Message = {"role": "assistant", "content": self.content}
            if self.reasoning:
                message["reasoning_content"] = self.reasoning
            if self.calls:
                message["tool_calls"] = cast("Any", self.calls)
            messages.append(message)
        return _Turn()


def _reasoning(item: Item) -> str:
    parts: list[Item] = item.get("content") or item.get("summary") or []
    return "".join(str(part.get("text", "")) for part in parts)
