"""Anthropic's messages as chat messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from art_core.gateway.problems import Problem, invalid
from art_core.trajectories import Message, Tool

Block = dict[str, Any]


def system_message(system: str | Sequence[Block] | None) -> list[Message]:
    """The system prompt as a message, if there is one."""
    if not system:
        return []
    text = system if isinstance(system, str) else _text(system, "system")
    return [{"role": "system", "content": text}]


def chat_messages(messages: Sequence[Block]) -> list[Message]:
    """Messages of content blocks as chat messages; a tool result becomes one of its own.

    Raises:
        Problem: a block that has no meaning to a text model; names it.
    """
    converted: list[Message] = []
    for index, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        where = f"messages[{index}]"
        if role not in ("user", "assistant"):
            raise invalid(f"{where}.role", f"{role!r:.80} must be 'user' or 'assistant'")
        if isinstance(content, str):
            converted.append({"role": role, "content": content})
        elif isinstance(content, list):
            blocks = cast("list[Block]", content)
            read = _assistant if role == "assistant" else _user
            converted += read(blocks, f"{where}.content")
        else:
            raise invalid(f"{where}.content", "must be a string or a list of content blocks")
    return converted


def blocks_of_message(message: Message) -> list[Block]:
    """An assistant message as content blocks."""
    blocks: list[Block] = []
    if message.get("reasoning_content"):
        thinking = message["reasoning_content"]
        blocks.append({"type": "thinking", "thinking": thinking, "signature": ""})
    if message.get("content"):
        blocks.append({"type": "text", "text": message["content"], "citations": None})
    for call in cast("list[dict[str, Any]]", message.get("tool_calls") or []):
        blocks.append({**tool_use(call), "input": json.loads(call["function"]["arguments"])})
    return blocks


def tool_use(call: dict[str, Any]) -> Block:
    """The block of a tool call, without its input."""
    return {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": {}}


def chat_tools(tools: Sequence[Block] | None) -> list[Tool] | None:
    """Client tools in the Chat API's form.

    Raises:
        Problem: a tool that runs at Anthropic, which nothing here can run.
    """
    converted: list[Tool] = []
    for index, tool in enumerate(tools or []):
        if tool.get("type") not in (None, "custom") or "input_schema" not in tool:
            raise invalid(
                f"tools[{index}]",
                f"{tool.get('type') or tool.get('name')!r:.80} is no tool with an input_schema of "
                "the client's own; only such can be used",
            )
        function = {
            "name": tool.get("name"),
            "description": tool.get("description"),
            "parameters": tool["input_schema"],
        }
        converted.append({"type": "function", "function": function})
    return converted or None


def _assistant(blocks: Sequence[Block], where: str) -> list[Message]:
    texts: list[str] = []
    thinking: list[str] = []
    calls: list[Any] = []
    for index, block in enumerate(blocks):
        match block.get("type"):
            case "text":
                texts.append(str(block.get("text", "")))
            case "thinking":
                thinking.append(str(block.get("thinking", "")))
            case "redacted_thinking":
                pass
            case "tool_use":
                arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
                function = {"name": block.get("name"), "arguments": arguments}
                calls.append({"id": block.get("id"), "type": "function", "function": function})
            case kind:
                raise _unreadable(f"{where}[{index}]", kind)
    message: Message = {"role": "assistant", "content": "".join(texts)}
    if thinking:
        message["reasoning_content"] = "".join(thinking)
    if calls:
        message["tool_calls"] = calls
    return [message]


def _user(blocks: Sequence[Block], where: str) -> list[Message]:
    results: list[Message] = []
    rest: list[Block] = []
    for index, block in enumerate(blocks):
        if block.get("type") == "tool_result":
            content: str | Sequence[Block] = block.get("content") or ""
            text = content if isinstance(content, str) else _text(content, f"{where}[{index}]")
            results.append(
                {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text}
            )
        else:
            rest.append(block)
    if rest:
        results.append({"role": "user", "content": _text(rest, where)})
    return results


def _text(blocks: Sequence[Block], where: str) -> str:
    for index, block in enumerate(blocks):
        if block.get("type") != "text":
            raise _unreadable(f"{where}[{index}]", block.get("type"))
    return "\n".join(str(block.get("text", "")) for block in blocks)


def _unreadable(where: str, kind: object) -> Problem:
    return invalid(where, f"blocks of type {kind!r:.80} can't be given to a text model")
