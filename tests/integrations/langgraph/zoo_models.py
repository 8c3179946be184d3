"""Graphs of the zoo that differ in how they call their models."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableParallel
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel

from tests.integrations.langgraph.shapes import Graph, Shape, Tools, chain, question


@tool
def lookup(word: str) -> str:
    """Look a word up."""
    return f"{word} is a marker"


class Score(BaseModel):
    """How good something is."""

    score: int


class Verdict(TypedDict):
    """How good something is."""

    score: int


def ask_for(directive: str) -> Callable[[str], list[Any]]:
    def turns(marker: str) -> list[Any]:
        asked = directive.replace("MARKER", marker)
        return [{"messages": [("user", f"question {marker} [[{asked}]]")]}]

    return turns


def react(tools: Tools) -> Graph:
    llm = tools.chat().bind_tools([lookup])
    builder = StateGraph(MessagesState)
    builder.add_node("agent", tools.answers(llm))
    builder.add_node("tools", ToolNode([lookup]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile()


def agent(tools: Tools) -> Graph:
    return create_agent(tools.chat(), [lookup], system_prompt="You look words up.")


def agent_as_tool(tools: Tools) -> Graph:
    """A supervisor whose tool is another agent."""
    inner: Graph = create_agent(tools.chat(), [], name="researcher")
    builder = StateGraph(MessagesState)

    def research(word: str) -> str:
        """Research a word."""
        found = inner.invoke({"messages": [("user", f"research {word}")]})
        return str(found["messages"][-1].content)

    async def aresearch(word: str) -> str:
        """Research a word."""
        found = await inner.ainvoke({"messages": [("user", f"research {word}")]})
        return str(found["messages"][-1].content)

    helper = tool("research")(tools.either(research, aresearch))
    builder.add_node("supervisor", create_agent(tools.chat(), [helper]))
    builder.add_edge(START, "supervisor")
    return builder.compile()


def structured(schema: Any, method: str) -> Any:
    def build(tools: Tools) -> Graph:
        judge = tools.chat().with_structured_output(schema, method=method)  # type: ignore[arg-type]

        def node(state: MessagesState) -> dict[str, Any]:
            return {"messages": [("user", f"parsed {judge.invoke(state['messages'])}")]}

        async def anode(state: MessagesState) -> dict[str, Any]:
            return {"messages": [("user", f"parsed {await judge.ainvoke(state['messages'])}")]}

        return chain({"judge": tools.either(node, anode)})

    return build


class Broken(BaseChatModel):
    """A model that is never there."""

    @property
    def _llm_type(self) -> str:
        return "broken"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise ConnectionError("the first choice is down")


def fallback(tools: Tools) -> Graph:
    return chain({"answer": tools.answers(Broken().with_fallbacks([tools.chat()]))})


def retrying(tools: Tools) -> Graph:
    return chain({"answer": tools.answers(tools.chat().with_retry(stop_after_attempt=2))})


def lcel(tools: Tools) -> Graph:
    prompt = ChatPromptTemplate([("system", "Be brief."), ("user", "{text}")])
    writer = prompt | tools.chat() | StrOutputParser()

    def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [("ai", writer.invoke({"text": state["messages"][-1].content}))]}

    async def anode(state: MessagesState) -> dict[str, Any]:
        answer = await writer.ainvoke({"text": state["messages"][-1].content})
        return {"messages": [("ai", answer)]}

    return chain({"write": tools.either(node, anode)})


def parallel_runnables(tools: Tools) -> Graph:
    llm = tools.chat() | StrOutputParser()
    both = RunnableParallel(first=llm, second=llm)

    def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [("ai", str(both.invoke(state["messages"])))]}

    async def anode(state: MessagesState) -> dict[str, Any]:
        return {"messages": [("ai", str(await both.ainvoke(state["messages"])))]}

    return chain({"both": tools.either(node, anode)})


def batched(tools: Tools) -> Graph:
    llm = tools.chat()

    def node(state: MessagesState) -> dict[str, Any]:
        text = str(state["messages"][-1].content)
        return {"messages": llm.batch([f"{text} one", f"{text} two"])}

    async def anode(state: MessagesState) -> dict[str, Any]:
        text = str(state["messages"][-1].content)
        return {"messages": await llm.abatch([f"{text} one", f"{text} two"])}

    return chain({"batch": tools.either(node, anode)})


def streamed(tools: Tools) -> Graph:
    llm = tools.chat()

    def node(state: MessagesState) -> dict[str, Any]:
        text = "".join(str(chunk.content) for chunk in llm.stream(state["messages"]))
        return {"messages": [("ai", text)]}

    async def anode(state: MessagesState) -> dict[str, Any]:
        text = "".join([str(chunk.content) async for chunk in llm.astream(state["messages"])])
        return {"messages": [("ai", text)]}

    return chain({"stream": tools.either(node, anode)})


def built_inside(tools: Tools) -> Graph:
    """A node that builds its model anew in each run."""

    def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [tools.chat(temperature=0).invoke(state["messages"])]}

    async def anode(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await tools.chat(temperature=0).ainvoke(state["messages"])]}

    return chain({"answer": tools.either(node, anode)})


def plain_client(tools: Tools) -> Graph:
    """A node that doesn't use LangChain at all."""

    def request(state: MessagesState) -> dict[str, Any]:
        content = str(state["messages"][-1].content)
        messages = [{"role": "user", "content": content}]
        return {"model": tools.model, "messages": messages, **tools.defaults}

    def node(state: MessagesState) -> dict[str, Any]:
        with tools.openai() as client:
            done = client.chat.completions.create(**request(state))
        return {"messages": [("ai", done.choices[0].message.content)]}

    async def anode(state: MessagesState) -> dict[str, Any]:
        async with tools.openai() as client:
            done = await client.chat.completions.create(**request(state))
        return {"messages": [("ai", done.choices[0].message.content)]}

    return chain({"raw": tools.either(node, anode)})


CALL_LOOKUP = 'call lookup {"word": "MARKER"}'
CALL_RESEARCH = 'call research {"word": "MARKER"}'

MODELS = [
    Shape(
        name="react",
        build=react,
        calls=("agent", "agent"),
        turns=ask_for(CALL_LOOKUP),
        needs="tool calls",
    ),
    Shape(
        name="create_agent",
        build=agent,
        calls=("model", "model"),
        turns=ask_for(CALL_LOOKUP),
        needs="tool calls",
    ),
    Shape(
        name="agent_as_tool",
        build=agent_as_tool,
        calls=("model", "model", "model"),
        turns=ask_for(CALL_RESEARCH),
        needs="tool calls",
    ),
    Shape(
        name="structured_by_call",
        build=structured(Score, "function_calling"),
        calls=("judge",),
        turns=ask_for('call Score {"score": 3}'),
        needs="constrained output",
    ),
    Shape(
        name="structured_typed_dict",
        build=structured(Verdict, "function_calling"),
        calls=("judge",),
        turns=ask_for('call Verdict {"score": 4}'),
        needs="constrained output",
    ),
    Shape(
        name="structured_by_json",
        build=structured(Score, "json_mode"),
        calls=("judge",),
        turns=ask_for('json {"score": 5}'),
        needs="constrained output",
    ),
    Shape(name="fallback", build=fallback, calls=("answer",)),
    Shape(name="retrying", build=retrying, calls=("answer",)),
    Shape(name="lcel", build=lcel, calls=("write",)),
    Shape(name="parallel_runnables", build=parallel_runnables, calls=("both", "both")),
    Shape(name="batched", build=batched, calls=("batch", "batch")),
    Shape(name="streamed", build=streamed, calls=("stream",)),
    Shape(name="built_inside", build=built_inside, calls=("answer",)),
    Shape(name="plain_client", build=plain_client, calls=("raw",)),
    Shape(
        name="responses_api",
        build=lambda tools: chain({"answer": tools.answers(tools.chat(use_responses_api=True))}),
        calls=("answer",),
        needs="Responses API",
    ),
    Shape(
        name="long_conversation",
        build=lambda tools: chain({"answer": tools.answers(tools.chat())}),
        calls=("answer",),
        turns=lambda marker: [
            {"messages": [*question(marker)["messages"], ("ai", "yes?"), ("user", "go on")]}
        ],
    ),
]
