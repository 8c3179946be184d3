# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""The same agent written with each client: two questions, a tool call each, one conversation.

Each takes its number, a base URL and a key, and returns its last answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
from pydantic import BaseModel

from tests.art_core.gateway.clients.plain import LOOK_UP
from tests.art_core.gateway.clients.plain import play as play_plain

Agent = Callable[[int, str, str], Awaitable[str]]

FUNCTION: dict[str, Any] = LOOK_UP["function"]


class Place(BaseModel):
    """What is asked for where an answer must be JSON."""

    where: str


def questions(number: int) -> list[str]:
    return [f"where is agent {number}?", f"and again agent {number}?"]


def look_up(who: str, times: float) -> str:
    """Look an agent up."""
    return f"at {who}"


async def with_openai(number: int, base_url: str, api_key: str) -> str:
    with openai.OpenAI(base_url=base_url, api_key=api_key) as client:
        return await asyncio.to_thread(play_plain, number, client)


async def with_openai_streaming(number: int, base_url: str, api_key: str) -> str:
    messages: list[Any] = []
    message: Any = None
    async with openai.AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        for question in questions(number):
            messages.append({"role": "user", "content": question})
            calls: list[Any] = [None]
            while calls:
                async with client.chat.completions.stream(
                    model="gpt-5", messages=messages, tools=[LOOK_UP]
                ) as stream:
                    message = (await stream.get_final_completion()).choices[0].message
                messages.append(message)
                calls = message.tool_calls or []
                messages += [_result(call) for call in calls]
    return str(message.content)


def _result(call: Any) -> dict[str, Any]:
    said = look_up(**json.loads(call.function.arguments))
    return {"role": "tool", "tool_call_id": call.id, "content": said}


async def with_openai_parse(number: int, base_url: str, api_key: str) -> str:
    messages: list[Any] = []
    message: Any = None
    async with openai.AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        for question in questions(number):
            messages.append({"role": "user", "content": question})
            answer = await client.chat.completions.parse(
                model="gpt-5", messages=messages, response_format=Place
            )
            message = answer.choices[0].message
            messages.append(message.model_dump(mode="json", exclude={"parsed"}))
    return message.parsed.where


async def with_openai_responses(number: int, base_url: str, api_key: str) -> str:
    tools: Any = [{"type": "function", "strict": None, **FUNCTION}]
    response: Any = None
    async with openai.AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        for question in questions(number):
            items: list[Any] = [{"role": "user", "content": question}]
            while items:
                response = await client.responses.create(
                    model="gpt-5",
                    input=items,
                    tools=tools,
                    previous_response_id=response and response.id,
                )
                items = [
                    {
                        "type": "function_call_output",
                        "call_id": item.call_id,
                        "output": look_up(**json.loads(item.arguments)),
                    }
                    for item in response.output
                    if item.type == "function_call"
                ]
    return response.output_text


async def with_langchain(number: int, base_url: str, api_key: str) -> str:
    from langchain_core.messages import HumanMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    named = tool(look_up)
    chat = ChatOpenAI(model="gpt-5", base_url=base_url, api_key=SecretStr(api_key))
    model = chat.bind_tools([named])
    messages: list[Any] = []
    for question in questions(number):
        messages.append(HumanMessage(question))
        calls: list[Any] = [None]
        while calls:
            message: Any = await model.ainvoke(messages)
            calls = message.tool_calls
            messages += [message, *[await named.ainvoke(call) for call in calls]]
    return str(messages[-1].content)


async def with_litellm(number: int, base_url: str, api_key: str) -> str:
    import litellm

    messages: list[Any] = []
    for question in questions(number):
        messages.append({"role": "user", "content": question})
        calls: list[Any] = [None]
        while calls:
            answer: Any = await litellm.acompletion(
                model="openai/gpt-5",
                messages=messages,
                tools=[LOOK_UP],
                base_url=base_url,
                api_key=api_key,
            )
            message = answer.choices[0].message
            calls = message.tool_calls or []
            messages += [message.model_dump(), *map(_result, calls)]
    return str(messages[-1]["content"])


async def with_openai_agents(number: int, base_url: str, api_key: str) -> str:
    import agents

    agents.set_tracing_disabled(True)
    items: Any = []
    result: Any = None
    async with openai.AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        model = agents.OpenAIResponsesModel(model="gpt-5", openai_client=client)
        agent = agents.Agent(
            name="agent", instructions="Be brief.", model=model, tools=[_agents_tool()]
        )
        for question in questions(number):
            result = await agents.Runner.run(agent, [*items, {"role": "user", "content": question}])
            items = result.to_input_list()
    return str(result.final_output)


def _agents_tool() -> Any:
    import agents

    return agents.function_tool(look_up)


async def with_pydantic_ai(number: int, base_url: str, api_key: str) -> str:
    from pydantic_ai.models.openai import OpenAIResponsesModel

    return await _pydantic_ai(number, base_url, api_key, OpenAIResponsesModel)


async def with_pydantic_ai_chat(number: int, base_url: str, api_key: str) -> str:
    from pydantic_ai.models.openai import OpenAIChatModel

    return await _pydantic_ai(number, base_url, api_key, OpenAIChatModel)


async def _pydantic_ai(number: int, base_url: str, api_key: str, kind: Any) -> str:
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai.providers.openai import OpenAIProvider

    result: Any = None
    async with openai.AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        model = kind("gpt-5", provider=OpenAIProvider(openai_client=client))
        agent: Any = PydanticAgent(model, instructions="Be brief.", tools=[look_up])
        for question in questions(number):
            history = result and result.all_messages()
            result = await agent.run(question, message_history=history)
    return str(result.output)


async def with_anthropic(number: int, base_url: str, api_key: str) -> str:
    tools: Any = [
        {
            "name": "look_up",
            "description": FUNCTION["description"],
            "input_schema": FUNCTION["parameters"],
        }
    ]
    messages: list[Any] = []
    answer: Any = None
    base_url = base_url.removesuffix("/v1")  # this library adds it
    async with anthropic.AsyncAnthropic(base_url=base_url, api_key=api_key) as client:
        for question in questions(number):
            content: Any = question
            while content:
                messages.append({"role": "user", "content": content})
                answer = await client.messages.create(
                    model="claude", max_tokens=1000, messages=messages, tools=tools
                )
                messages.append({"role": "assistant", "content": answer.content})
                content = [
                    {
                        "type": "tool_result",
                        "tool_use_id": block.id,
                        "content": look_up(**block.input),
                    }
                    for block in answer.content
                    if block.type == "tool_use"
                ]
    return "".join(block.text for block in answer.content if block.type == "text")


async def in_a_process(number: int, base_url: str, api_key: str) -> str:
    script = Path(__file__).with_name("plain.py")
    return await run([sys.executable, str(script), str(number)], base_url, api_key)


async def run(command: list[str], base_url: str, api_key: str) -> str:
    """What a program prints that knows nothing but the base URL and a key."""
    variables = {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": api_key}
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **variables}, stdout=subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode().strip()


AGENTS: dict[str, Agent] = {
    "openai": with_openai,
    "openai streaming": with_openai_streaming,
    "openai parse": with_openai_parse,
    "openai responses": with_openai_responses,
    "langchain-openai": with_langchain,
    "litellm": with_litellm,
    "openai-agents": with_openai_agents,
    "pydantic-ai": with_pydantic_ai,
    "pydantic-ai chat": with_pydantic_ai_chat,
    "anthropic": with_anthropic,
    "a process": in_a_process,
}
