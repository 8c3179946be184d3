# pyright: reportUnknownMemberType=false
"""What becomes of a rollout: rewards, failures, truncation, and the function itself."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import pytest
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph

from art_core.errors import RewardError
from art_core.rollouts import TrainableModel, gather_trajectory_groups
from art_core.trajectories import TrajectoryGroup, TrajectoryStatus
from integrations.langgraph import rollout
from tests.integrations.langgraph.author import author
from tests.integrations.langgraph.provider import Provider
from tests.integrations.langgraph.served import ScriptedBackend, nodes_of, records_of
from tests.integrations.langgraph.shapes import Graph, Tools, chain, question
from tests.integrations.langgraph.zoo_models import CALL_LOOKUP, agent

Policy = TrainableModel[Any]


def endless(tools: Tools) -> Graph:
    builder = StateGraph(MessagesState)
    builder.add_node("again", tools.answers(tools.chat()))
    builder.add_edge(START, "again")
    builder.add_edge("again", "again")
    return builder.compile()


def no_answer(answer: object, marker: str) -> float:
    return answer is None


def breaking(tools: Tools) -> Graph:
    """Asks once, then breaks in a node of a subgraph."""

    def burst(state: MessagesState) -> None:
        raise ZeroDivisionError("the pipe burst")

    return chain({"ask": tools.asks(tools.chat()), "work": chain({"pipe": burst})})


@pytest.mark.parametrize(
    ("returned", "reward", "answer"),
    [
        (0.5, 0.5, None),
        (True, 1.0, None),
        (("42", 1), 1.0, "42"),
        (("42", None), None, "42"),
        (None, None, None),
        ("42", None, "42"),
        ({"a": [1]}, None, {"a": [1]}),
        (("42", "43", 1), None, ["42", "43", 1]),
    ],
)
async def test_what_the_function_returns(
    returned: Any, reward: float | None, answer: Any, policy: Policy
) -> None:
    async with author(None, "ainvoke") as tools:
        graph = chain({"ask": tools.asks(tools.chat())})

        @rollout(policy)
        async def run(marker: str) -> Any:
            await graph.ainvoke(question(marker))
            return returned

        trajectory = await run.play("m1")
    assert trajectory.status is TrajectoryStatus.FINISHED
    assert (trajectory.reward, trajectory.metadata.get("answer")) == (reward, answer)
    assert trajectory.metadata["scenario"] == "m1"


async def test_a_reward_that_is_no_number(policy: Policy) -> None:
    @rollout(policy)
    async def run(marker: str) -> Any:
        return "answer", float("nan")

    with pytest.raises(RewardError, match="nan"):
        await run.play("m1")


async def test_grading_is_outside_the_capture(
    scripted_backend: ScriptedBackend, provider: Provider
) -> None:
    policy = scripted_backend.new_policy(f"graded-{provider.server_port}", provider.host)
    async with author(provider.base_url, "ainvoke") as tools:
        graph = chain({"ask": tools.asks(tools.chat())})

        async def judge(state: Any, marker: str) -> float:
            verdict = await tools.chat().ainvoke(f"grade {marker}: {state['messages'][-1].text}")
            return len(verdict.text)

        @rollout(policy, reward=judge)
        async def run(marker: str) -> Any:
            return await graph.ainvoke(question(marker))

        trajectory = await run.play("m1")
    assert trajectory.reward == len("ok m1")
    assert trajectory.metadata["answer"] == "ok m1"
    assert await nodes_of(policy, trajectory) == ["ask"]
    (request,) = provider.requests
    assert request["body"]["messages"][-1]["content"] == "grade m1: ok m1"


async def test_an_exception_makes_a_failed_trajectory_that_names_the_node(policy: Policy) -> None:
    async with author(None, "ainvoke") as tools:
        graph = breaking(tools)

        @rollout(policy)
        async def run(marker: str) -> float:
            await graph.ainvoke(question(marker))
            return 1.0

        trajectory = await run.play("m1")
        group = TrajectoryGroup(run.play(marker) for marker in ("m1", "m2"))
        with pytest.raises(Exception, match="the pipe burst"):
            await gather_trajectory_groups([group], pbar_desc=None)
    assert trajectory.status is TrajectoryStatus.FAILED
    assert trajectory.reward is None
    assert trajectory.metadata["failed_node"] == "pipe"
    assert "ZeroDivisionError: the pipe burst" in str(trajectory.error)
    assert await nodes_of(policy, trajectory) == ["ask"]


async def test_the_recursion_limit_truncates(policy: Policy) -> None:
    async with author(None, "ainvoke") as tools:
        graph = endless(tools)

        async def run(marker: str) -> None:
            await graph.ainvoke(question(marker), {"recursion_limit": 3})

        unscored = await rollout(policy)(run).play("m1")
        fixed = await rollout(policy, truncated_reward=-1)(run).play("m1")
        graded = await rollout(policy, reward=no_answer)(run).play("m1")
    assert {each.status for each in (unscored, fixed, graded)} == {TrajectoryStatus.TRUNCATED}
    assert [each.reward for each in (unscored, fixed, graded)] == [None, -1.0, 1.0]
    assert len(await records_of(policy, unscored)) == 3


async def test_a_recursion_limit_that_the_function_handles_still_truncates(policy: Policy) -> None:
    async with author(None, "ainvoke") as tools:
        graph = endless(tools)

        @rollout(policy)
        async def run(marker: str) -> float:
            with pytest.raises(GraphRecursionError):
                await graph.ainvoke(question(marker), {"recursion_limit": 3})
            return 0.25

        trajectory = await run.play("m1")
    assert (trajectory.status, trajectory.reward) == (TrajectoryStatus.TRUNCATED, 0.25)


async def test_tool_calls_and_results_are_in_the_messages(policy: Policy) -> None:
    async with author(None, "ainvoke") as tools:
        graph = agent(tools)

        @rollout(policy)
        async def run(marker: str) -> float:
            asked = f"[[{CALL_LOOKUP}]]".replace("MARKER", marker)
            await graph.ainvoke({"messages": [("user", asked)]})
            return 1.0

        trajectory = await run.play("m7")
    roles = [message["role"] for message in trajectory.messages()]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert "lookup" in str(trajectory.messages()[2]["tool_calls"])
    assert trajectory.messages()[3]["content"] == "m7 is a marker"
    assert "lookup" in str(trajectory.tools)
    assert len(trajectory.histories) == 1


async def test_called_it_is_what_it_was(provider: Provider, policy: Policy) -> None:
    async with author(provider.base_url, "ainvoke") as tools:
        graph = chain({"ask": tools.asks(tools.chat())})

        @rollout(policy)
        async def run(marker: str) -> str:
            """Run it."""
            return (await graph.ainvoke(question(marker)))["messages"][-1].text

        assert await run("m1") == "ok m1"
        assert (run.__name__, run.__doc__) == ("run", "Run it.")
        assert inspect.iscoroutinefunction(run.__call__)
    assert len(provider.requests) == 1


async def test_methods_can_be_decorated(policy: Policy) -> None:
    class Service:
        def __init__(self, graph: Graph) -> None:
            self.graph = graph

        @rollout(policy)
        async def run(self, marker: str) -> float:
            await self.graph.ainvoke(question(marker))
            return 1.0

    async with author(None, "ainvoke") as tools:
        service = Service(chain({"ask": tools.asks(tools.chat())}))
        trajectory = await service.run.play("m1")
    assert trajectory.reward == 1.0
    assert trajectory.metadata["scenario"] == "m1"


async def test_synchronous_functions_run_many_at_a_time(policy: Policy) -> None:
    everyone = threading.Barrier(24, timeout=60)
    async with author(None, "invoke") as tools:
        graph = chain({"ask": tools.asks(tools.chat())})

        @rollout(policy)
        def run(marker: str) -> float:
            everyone.wait()
            return float(len(graph.invoke(question(marker))["messages"]))

        trajectories = await asyncio.gather(*(run.play(f"m{n}") for n in range(24)))
    assert [each.reward for each in trajectories] == [2.0] * 24
    for number, trajectory in enumerate(trajectories):
        (record,) = await records_of(policy, trajectory)
        assert f"m{number}" in str(record.messages)


async def test_cancelling_a_play_cancels_the_graph(policy: Policy) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @rollout(policy)
    async def run(marker: str) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    task = asyncio.create_task(run.play("m1"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()
