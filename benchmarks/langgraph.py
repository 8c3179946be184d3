"""What the decorator costs a LangGraph graph, per node.

    python -m benchmarks.langgraph [--json]

A graph of ten nodes, each with one call of a hard-coded `ChatOpenAI`, is run by itself
with that model at the gateway's URL, and as a rollout whose calls are captured,
attributed, named and recorded. The gateway is the same and its engine answers at once,
so the difference is capture, callbacks, and opening and closing the rollout. A second
pair of runs has nodes without a model call.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from langgraph.graph import MessagesState

from art_core.rollouts import TrainableModel
from benchmarks.report import report
from integrations.langgraph import rollout
from tests.integrations.langgraph.author import author
from tests.integrations.langgraph.served import ScriptedBackend
from tests.integrations.langgraph.shapes import Graph, Tools, chain, question

NODES = 10
RUNS = 60
WARM_UP = 10


def asking(tools: Tools) -> Graph:
    return chain({f"node{n}": tools.answers(tools.chat()) for n in range(NODES)})


def idle(first: Any) -> Graph:
    """One node with a call, then nine without."""

    async def node(state: MessagesState) -> dict[str, Any]:
        return {}

    return chain({"first": first, **{f"node{n}": node for n in range(NODES - 1)}})


async def seconds(run: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await run()
    return time.perf_counter() - started


async def added_ms(policy: TrainableModel[Any], build: Callable[[Tools], Graph]) -> list[float]:
    """Milliseconds that each node takes by itself and in a rollout, medians."""
    bare: list[float] = []
    played: list[float] = []
    async with (
        author(policy.inference_base_url, "ainvoke", model=policy.name) as direct,
        author(None, "ainvoke") as hard_coded,
    ):
        alone, graph = build(direct), build(hard_coded)

        @rollout(policy)
        async def answer(marker: str) -> None:
            await graph.ainvoke(question(marker))

        for run in range(WARM_UP + RUNS):
            one = await seconds(lambda: alone.ainvoke(question("m1")))
            other = await seconds(lambda: answer.play("m1"))
            if run >= WARM_UP:
                bare.append(one)
                played.append(other)
    return [statistics.median(each) * 1000 / NODES for each in (bare, played)]


async def measure(backend: ScriptedBackend) -> dict[str, float]:
    policy = backend.new_policy("policy")
    bare, played = await added_ms(policy, asking)
    idle_bare, idle_played = await added_ms(policy, lambda t: idle(t.answers(t.chat())))
    return {
        "ms_per_node": played - bare,
        "ms_per_node_undecorated": bare,
        "ms_per_idle_node": idle_played - idle_bare,
        "ms_per_idle_node_undecorated": idle_bare,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        backend = ScriptedBackend(Path(folder))
        try:
            figures = asyncio.run(measure(backend))
        finally:
            backend.stop()
    report("langgraph", figures, setup={"nodes": NODES, "runs": RUNS})


if __name__ == "__main__":
    main()
