"""What the decorator costs a LangGraph graph, per node.

    python -m benchmarks.langgraph [--json]

A graph of ten nodes, each with one call of a hard-coded `ChatOpenAI`, is run by itself
with that model at the gateway's URL, and as a rollout whose calls are captured,
attributed, named and recorded. The gateway is the same and its engine answers at once,
so the difference is capture, callbacks, and opening and closing the rollout (a tenth of
which falls on each node). A second pair of runs has one node with a call and nine without.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds per node of one run: by the clock, and of the processor (all threads
    of this process, so that other work on the machine counts little)."""

    wall: float
    cpu: float


async def cost(run: Callable[[], Awaitable[object]]) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    await run()
    scale = 1000 / NODES
    return Cost((time.perf_counter() - wall) * scale, (time.process_time() - cpu) * scale)


def median(costs: Sequence[Cost]) -> Cost:
    return Cost(
        statistics.median(each.wall for each in costs),
        statistics.median(each.cpu for each in costs),
    )


async def costs(policy: TrainableModel[Any], build: Callable[[Tools], Graph]) -> tuple[Cost, Cost]:
    """What each node takes by itself and in a rollout, medians."""
    bare: list[Cost] = []
    played: list[Cost] = []
    async with (
        author(policy.inference_base_url, "ainvoke", model=policy.name) as direct,
        author(None, "ainvoke") as hard_coded,
    ):
        alone, graph = build(direct), build(hard_coded)

        @rollout(policy)
        async def answer(marker: str) -> None:
            await graph.ainvoke(question(marker))

        for run in range(WARM_UP + RUNS):
            one = await cost(lambda: alone.ainvoke(question("m1")))
            other = await cost(lambda: answer.play("m1"))
            if run >= WARM_UP:
                bare.append(one)
                played.append(other)
    return median(bare), median(played)


async def measure(backend: ScriptedBackend) -> dict[str, float]:
    policy = backend.new_policy("policy")
    bare, played = await costs(policy, asking)
    idle_bare, idle_played = await costs(policy, lambda t: idle(t.answers(t.chat())))
    return {
        "ms_per_node": played.wall - bare.wall,
        "cpu_ms_per_node": played.cpu - bare.cpu,
        "undecorated_ms_per_node": bare.wall,
        "undecorated_cpu_ms_per_node": bare.cpu,
        "ms_per_idle_node": idle_played.wall - idle_bare.wall,
        "cpu_ms_per_idle_node": idle_played.cpu - idle_bare.cpu,
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
