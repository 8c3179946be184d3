# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""A ReAct agent of ``create_agent`` with a real tool over real data.

    python examples/langgraph_react.py

The agent is asked what an HTTP status code means and has a tool that looks codes up in
Python's own table of them. A model of 135 million parameters rarely writes a tool call
that can be read, even after three examples, and rarely repeats what a tool said. By
reward alone it learns both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from http import HTTPStatus
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

import art_core as art
from art_core.rollouts import TrainReport
from integrations.langgraph import rollout

model = art.TrainableModel(name="react", project="langgraph", base_model="smollm2-135m")
llm = ChatOpenAI(model="gpt-4.1-mini", api_key=SecretStr("your key"), max_completion_tokens=32)


@tool
def http_status(code: int) -> str:
    """The name of an HTTP status code."""
    known = {status.value: status.phrase for status in HTTPStatus}
    return known.get(code, "no such code")


agent = create_agent(llm, [http_status])


def question(code: int) -> HumanMessage:
    return HumanMessage(f"What does HTTP status {code} mean?")


def example(code: int) -> list[AnyMessage]:
    """How it is done, as the agent's own earlier work."""
    call = {"name": "http_status", "args": {"code": code}, "id": f"call_{code}"}
    phrase = HTTPStatus(code).phrase
    return [
        question(code),
        AIMessage("", tool_calls=[call]),
        ToolMessage(phrase, tool_call_id=f"call_{code}"),
        AIMessage(phrase),
    ]


EXAMPLES = (200, 302, 404)
SHOWN = [message for code in EXAMPLES for message in example(code)]


@rollout(model)
async def look_up(code: int) -> tuple[str, float]:
    state = await agent.ainvoke({"messages": [*SHOWN, question(code)]}, {"recursion_limit": 8})
    new: list[AnyMessage] = state["messages"][len(SHOWN) + 1 :]
    return new[-1].text, grade(new, code)


def grade(messages: list[AnyMessage], code: int) -> float:
    """A fifth for a call of the tool, two for the right call, two for the right answer."""
    calls: list[Any] = [
        call for each in messages if isinstance(each, AIMessage) for call in each.tool_calls
    ]
    called = any(call["name"] == "http_status" for call in calls)
    rightly = any(json.dumps(call["args"]) == json.dumps({"code": code}) for call in calls)
    answered = (
        rightly and messages[-1].text.strip(" .\n").lower() == HTTPStatus(code).phrase.lower()
    )
    return (called + 2 * rightly + 2 * answered) / 5


async def main(steps: int, held_out: int, root: str) -> TrainReport:
    codes = [status.value for status in HTTPStatus if status.value not in EXAMPLES]
    random.Random(0).shuffle(codes)
    config = art.TrainConfig(
        steps=steps, groups_per_step=4, learning_rate=5e-4, eval_every=steps, seed=1
    )
    async with art.LocalBackend(root) as backend:
        await model.register(backend)
        return await art.train(
            model, look_up, codes[held_out:], config, validation=codes[:held_out]
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--held-out", type=int, default=12)
    parser.add_argument("--root", default=".art")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.steps, arguments.held_out, arguments.root))
