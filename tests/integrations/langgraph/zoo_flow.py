"""Graphs of the zoo that differ in how control flows."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import operator
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt

from tests.integrations.langgraph.shapes import Graph, Shape, Tools, chain, question


def single(tools: Tools) -> Graph:
    return chain({"answer": tools.answers(tools.chat())})


def two_steps(tools: Tools) -> Graph:
    llm = tools.chat()
    return chain({"draft": tools.asks(llm, "draft"), "revise": tools.asks(llm, "revise")})


def fan_out(tools: Tools) -> Graph:
    llm = tools.chat()
    builder = StateGraph(MessagesState)
    for name in ("left", "middle", "right"):
        builder.add_node(name, tools.asks(llm, name))
        builder.add_edge(START, name)
    builder.add_node("join", tools.asks(llm, "join"))
    builder.add_edge(["left", "middle", "right"], "join")
    return builder.compile()


class Topics(TypedDict):
    question: str
    answers: Annotated[list[str], operator.add]


def send(tools: Tools) -> Graph:
    llm = tools.chat()

    def one(state: Any) -> dict[str, Any]:
        return {"answers": [str(llm.invoke(state["topic"]).content)]}

    async def aone(state: Any) -> dict[str, Any]:
        return {"answers": [str((await llm.ainvoke(state["topic"])).content)]}

    def spread(state: Topics) -> list[Send]:
        return [Send("one", {"topic": f"{state['question']} part {n}"}) for n in range(4)]

    builder = StateGraph(Topics)
    builder.add_node("one", tools.either(one, aone))
    builder.add_conditional_edges(START, spread, ["one"])
    return builder.compile()


def router(tools: Tools) -> Graph:
    llm = tools.chat()

    def choose(state: MessagesState) -> Literal["even", "odd"]:
        return "even" if len(str(state["messages"][-1].content)) % 2 == 0 else "odd"

    builder = StateGraph(MessagesState)
    builder.add_node("classify", tools.asks(llm, "classify"))
    builder.add_node("even", tools.asks(llm, "even"))
    builder.add_node("odd", tools.asks(llm, "odd"))
    builder.add_edge(START, "classify")
    builder.add_conditional_edges("classify", choose)
    return builder.compile()


def loop(tools: Tools) -> Graph:
    llm = tools.chat()

    def again(state: MessagesState) -> Literal["improve", "__end__"]:
        return "improve" if len(state["messages"]) < 4 else "__end__"

    builder = StateGraph(MessagesState)
    builder.add_node("improve", tools.asks(llm, "improve"))
    builder.add_edge(START, "improve")
    builder.add_conditional_edges("improve", again)
    return builder.compile()


def subgraph_node(tools: Tools) -> Graph:
    inner = chain({"inner": tools.asks(tools.chat(), "inside")})
    return chain({"before": tools.asks(tools.chat(), "before"), "sub": inner})


def subgraph_called(tools: Tools) -> Graph:
    inner = chain({"inner": tools.asks(tools.chat(), "inside")})

    def node(state: MessagesState) -> Any:
        return inner.invoke(state)

    async def anode(state: MessagesState) -> Any:
        return await inner.ainvoke(state)

    return chain({"outer": tools.either(node, anode)})


def subgraph_deep(tools: Tools) -> Graph:
    return chain({"a": chain({"b": chain({"c": tools.asks(tools.chat())})})})


def handoff(tools: Tools) -> Graph:
    llm = tools.chat()
    triage, expert = tools.asks(llm, "triage"), tools.asks(llm, "expert")

    def go(state: MessagesState) -> Command[Literal["expert"]]:
        return Command(goto="expert", update=triage(state))

    async def ago(state: MessagesState) -> Command[Literal["expert"]]:
        return Command(goto="expert", update=await triage(state))

    builder = StateGraph(MessagesState)
    builder.add_node("triage", tools.either(go, ago), destinations=("expert",))
    builder.add_node("expert", expert)
    builder.add_edge(START, "triage")
    return builder.compile()


def two_turns(marker: str) -> Sequence[Any]:
    return [question(marker), {"messages": [("user", "and then?")]}]


def remembering(tools: Tools) -> Graph:
    return chain({"answer": tools.answers(tools.chat())}, checkpointer=InMemorySaver())


def approval(tools: Tools) -> Graph:
    def approve(state: MessagesState) -> dict[str, Any]:
        return {"messages": [("user", f"approved: {interrupt('go on?')}")]}

    llm = tools.chat()
    nodes = {"plan": tools.asks(llm), "approve": approve, "act": tools.asks(llm)}
    return chain(nodes, checkpointer=InMemorySaver())


def functional(tools: Tools) -> Graph:
    llm = tools.chat()

    if tools.sync:

        @task
        def write(text: str) -> str:
            return str(llm.invoke(text).content)

        @entrypoint()
        def flow(state: dict[str, Any]) -> list[str]:
            text = state["messages"][0][1]
            return [part.result() for part in [write(f"{text} one"), write(f"{text} two")]]

        return flow

    @task(name="write")
    async def awrite(text: str) -> str:
        return str((await llm.ainvoke(text)).content)

    @entrypoint()
    async def aflow(state: dict[str, Any]) -> list[str]:
        text = state["messages"][0][1]
        return [await part for part in [awrite(f"{text} one"), awrite(f"{text} two")]]

    return aflow


def node_retry(tools: Tools) -> Graph:
    answer = tools.asks(tools.chat())
    failed: set[str] = set()

    def stumble(state: MessagesState) -> None:
        key = str(state["messages"][0].id)
        if key not in failed:
            failed.add(key)
            raise ConnectionError("first try")

    def node(state: MessagesState) -> Any:
        stumble(state)
        return answer(state)

    async def anode(state: MessagesState) -> Any:
        stumble(state)
        return await answer(state)

    policy = RetryPolicy(initial_interval=0.01, jitter=False, retry_on=ConnectionError)
    builder = StateGraph(MessagesState)
    builder.add_node("answer", tools.either(node, anode), retry_policy=policy)
    builder.add_edge(START, "answer")
    return builder.compile()


def threads(tools: Tools) -> Graph:
    """A node that asks from threads of its own pool."""
    llm = tools.chat()

    def node(state: MessagesState) -> dict[str, Any]:
        text = str(state["messages"][-1].content)
        with ThreadPoolExecutor(2) as pool:
            answers = pool.map(llm.invoke, [f"{text} a", f"{text} b"])
            return {"messages": list(answers)}

    return chain({"ask": node})


FLOW = [
    Shape(name="single", build=single, calls=("answer",)),
    Shape(name="two_steps", build=two_steps, calls=("draft", "revise")),
    Shape(name="fan_out", build=fan_out, calls=("join", "left", "middle", "right")),
    Shape(
        name="send",
        build=send,
        calls=("one",) * 4,
        turns=lambda marker: [{"question": marker, "answers": []}],
    ),
    Shape(name="router", build=router, calls=("classify", "odd")),
    Shape(name="loop", build=loop, calls=("improve",) * 3),
    Shape(name="subgraph_node", build=subgraph_node, calls=("before", "inner")),
    Shape(name="subgraph_called", build=subgraph_called, calls=("inner",)),
    Shape(name="subgraph_deep", build=subgraph_deep, calls=("c",)),
    Shape(name="handoff", build=handoff, calls=("expert", "triage")),
    Shape(name="remembering", build=remembering, calls=("answer",) * 2, turns=two_turns),
    Shape(
        name="approval",
        build=approval,
        calls=("act", "plan"),
        turns=lambda marker: [question(marker), Command(resume="yes")],
    ),
    Shape(name="functional", build=functional, calls=("write",) * 2),
    Shape(name="node_retry", build=node_retry, calls=("answer",)),
    Shape(name="threads", build=threads, calls=("ask",) * 2),
]
