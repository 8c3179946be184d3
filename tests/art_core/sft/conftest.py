# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Conversations, formats and tiny models to learn them with."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from transformers import AutoTokenizer

from art_core.chat import TemplateFormat, chat_format_for
from tests.art_core.chat.templates import Template, trl_templates

Make = Callable[..., Any]
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds one",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
}


def conversation(number: int, **more: Any) -> dict[str, Any]:
    """Four messages with a tool call, as OpenAI's fine-tuning format has them."""
    call = {"name": "add", "arguments": json.dumps({"n": number})}
    return {
        "messages": [
            {"role": "user", "content": f"Add one to {number}"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call00001", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": "call00001", "content": str(number + 1)},
            {"role": "assistant", "content": f"It is {number + 1}."},
        ],
        "tools": [TOOL],
        **more,
    }


@pytest.fixture(scope="session")
def make_conversation() -> Make:
    return conversation


@pytest.fixture(scope="session")
def all_templates() -> dict[str, Template]:
    """TRL's templates by name."""
    return {template.name: template for template in trl_templates()}


@pytest.fixture(scope="session")
def smollm2_chat(smollm2_folder: Any) -> TemplateFormat:
    """The format of the embedded model, with its real tokenizer."""
    return chat_format_for(AutoTokenizer.from_pretrained(smollm2_folder))
