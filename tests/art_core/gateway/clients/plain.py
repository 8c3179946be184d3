"""An agent that was told nothing but OPENAI_BASE_URL: run as a process of its own.

python plain.py NUMBER
"""

from __future__ import annotations

import json
import sys
from typing import Any

import openai

LOOK_UP: Any = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look an agent up.",
        "parameters": {
            "type": "object",
            "properties": {"who": {"type": "string"}, "times": {"type": "number"}},
            "required": ["who", "times"],
        },
    },
}


def play(number: int, client: openai.OpenAI) -> str:
    """Two questions, one conversation; returns the last answer."""
    messages: list[Any] = []
    for question in ("where is", "and again"):
        messages.append({"role": "user", "content": f"{question} agent {number}?"})
        while True:
            answer = client.chat.completions.create(
                model="gpt-5", messages=messages, tools=[LOOK_UP]
            )
            message: Any = answer.choices[0].message
            messages.append(message.model_dump(exclude_unset=True))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                who = json.loads(call.function.arguments)["who"]
                messages.append({"role": "tool", "tool_call_id": call.id, "content": f"at {who}"})
    return str(messages[-1]["content"])


if __name__ == "__main__":
    with openai.OpenAI() as openai_client:
        print(play(int(sys.argv[1]), openai_client))
