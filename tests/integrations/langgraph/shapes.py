"""What a graph of the zoo is, and the ways in which it is run."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel

Mode = Literal["ainvoke", "invoke", "astream", "astream_events", "batch"]
MODES: tuple[Mode, ...] = ("ainvoke", "invoke", "astream", "astream_events", "batch")
Graph = Any
"""A compiled graph; its type parameters differ from graph to graph."""
Node = Any
"""A node function; LangGraph's own type of it asks for a parameter called state."""


def question(marker: str) -> dict[str, Any]:
    return {"messages": [("user", f"question {marker}")]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What a graph is built from: chat models, and whether its nodes are synchronous."""

    chat: Callable[..., BaseChatModel]
    """The chat model of the graph's author; keyword arguments go to its constructor."""
    openai: Callable[[], Any]
    """A plain openai client of the graph's author, synchronous or not like the nodes."""
    model: str
    """What both ask for."""
    defaults: dict[str, Any]
    """What each request of the plain client carries."""
    sync: bool

    def asks(self, llm: Runnable[Any, Any], prompt: str = "continue") -> Node:
        """A node that appends the model's answer to the conversation and ``prompt``."""

        def node(state: MessagesState) -> dict[str, Any]:
            return {"messages": [llm.invoke([*state["messages"], ("user", prompt)])]}

        async def anode(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await llm.ainvoke([*state["messages"], ("user", prompt)])]}

        return node if self.sync else anode

    def answers(self, llm: Runnable[Any, Any]) -> Node:
        """A node that appends the model's answer to the conversation as it is."""

        def node(state: MessagesState) -> dict[str, Any]:
            return {"messages": [llm.invoke(state["messages"])]}

        async def anode(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await llm.ainvoke(state["messages"])]}

        return node if self.sync else anode

    def either(self, sync: Callable[[Any], Any], asynchronous: Callable[[Any], Any]) -> Node:
        return sync if self.sync else asynchronous


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    name: str
    build: Callable[[Tools], Graph]
    calls: tuple[str, ...]
    """The node of each model call of one run, when the model answers by script."""
    turns: Callable[[str], Sequence[Any]] = lambda marker: [question(marker)]
    """The inputs of one conversation, given to the graph one after the other."""
    needs: Literal["text", "tool calls", "constrained output", "Responses API"] = "text"
    """What the graph needs of the model, or of the server in front of it."""


def chain(nodes: dict[str, Node], **compile_options: Any) -> Graph:
    """A graph of nodes one after the other."""
    builder = StateGraph(MessagesState)
    previous = START
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(previous, name)
        previous = name
    return builder.compile(**compile_options)


async def run(graph: Graph, turns: Sequence[Any], mode: Mode, thread_id: str) -> Any:
    """The graph's last state after all turns, run in one of the five ways."""
    config: RunnableConfig = {"configurable": {"thread_id": thread_id}, "recursion_limit": 25}
    if mode in ("invoke", "batch"):
        return await asyncio.to_thread(run_sync, graph, turns, mode, config)
    result: Any = None
    for turn in turns:
        if mode == "ainvoke":
            result = await graph.ainvoke(turn, config)
        elif mode == "astream":
            async for values in graph.astream(turn, config, stream_mode="values"):
                result = values
        else:
            async for event in graph.astream_events(turn, config, version="v2"):
                if event["event"] == "on_chain_end" and not event["parent_ids"]:
                    result = event["data"]["output"]
    return result


def run_sync(graph: Graph, turns: Sequence[Any], mode: Mode, config: RunnableConfig) -> Any:
    result: Any = None
    for turn in turns:
        if mode == "invoke":
            result = graph.invoke(turn, config)
        else:
            (result,) = graph.batch([turn], config)
    return result


def plain(value: Any) -> Any:
    """A state without what differs from run to run: ids, usage, provider metadata."""
    if isinstance(value, BaseMessage):
        calls = [(call["name"], call["args"]) for call in getattr(value, "tool_calls", [])]
        return (value.type, value.text, calls)
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key != "__interrupt__"}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
