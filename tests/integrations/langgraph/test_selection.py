"""Which nodes are served and trained, and by which policy."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from art_core.errors import ConfigError
from art_core.rollouts import TrainableModel
from art_core.trajectories import TrajectoryStatus
from integrations.langgraph import chat_model, rollout, trace
from tests.integrations.langgraph.author import KEY, author
from tests.integrations.langgraph.provider import Provider
from tests.integrations.langgraph.served import ScriptedBackend, nodes_of
from tests.integrations.langgraph.shapes import Graph, Tools, chain, question

Policy = TrainableModel[Any]


@pytest.fixture
async def tools(provider: Provider) -> AsyncGenerator[Tools]:
    """Those of an author whose own model is at the scripted provider."""
    async with author(provider.base_url, "ainvoke") as made:
        yield made


@pytest.fixture
def planner(scripted_backend: ScriptedBackend, provider: Provider) -> Policy:
    """A policy that captures what goes to the provider."""
    return scripted_backend.new_policy(f"planner-{provider.server_port}", provider.host)


@pytest.fixture
def critic(scripted_backend: ScriptedBackend, provider: Provider) -> Policy:
    return scripted_backend.new_policy(f"critic-{provider.server_port}", provider.host)


def plan_and_write(tools: Tools) -> Graph:
    return chain({"plan": tools.asks(tools.chat(), "p"), "write": tools.asks(tools.chat(), "w")})


async def play(policy: Policy, graph: Graph, **options: Any) -> list[str]:
    """Run the graph in a rollout; the nodes whose calls were recorded."""

    @rollout(policy, **options)
    async def answer(marker: str) -> None:
        await graph.ainvoke(question(marker))

    return await nodes_of(policy, await answer.play("m1"))


def kept(provider: Provider) -> list[str]:
    """The last words of the prompts that reached the author's own model, with his own key."""
    for request in provider.requests:
        assert request["headers"]["authorization"] == f"Bearer {KEY}"
        assert request["path"] == "/v1/chat/completions"
    return [request["body"]["messages"][-1]["content"] for request in provider.requests]


async def test_all_nodes_by_default(tools: Tools, planner: Policy, provider: Provider) -> None:
    assert await play(planner, plan_and_write(tools)) == ["plan", "write"]
    assert kept(provider) == []


async def test_nodes_named_in_the_decorator(
    tools: Tools, planner: Policy, provider: Provider
) -> None:
    assert await play(planner, plan_and_write(tools), train=["plan"]) == ["plan"]
    assert kept(provider) == ["w"]


async def test_nodes_named_on_the_graph(tools: Tools, planner: Policy, provider: Provider) -> None:
    graph = trace(plan_and_write(tools), train=["write"])
    assert await play(planner, graph) == ["write"]
    assert kept(provider) == ["p"]


async def test_wrapped_nodes(tools: Tools, planner: Policy, provider: Provider) -> None:
    plan = trace(tools.asks(tools.chat(), "p"))
    graph = chain({"plan": plan, "write": tools.asks(tools.chat(), "w")})
    assert await play(planner, graph, train="traced") == ["plan"]
    assert kept(provider) == ["w"]


async def test_a_wrapped_subgraph(tools: Tools, planner: Policy, provider: Provider) -> None:
    inner = chain({"plan": tools.asks(tools.chat(), "p")})
    graph = chain({"sub": trace(inner.with_retry()), "write": tools.asks(tools.chat(), "w")})
    assert await play(planner, graph, train="traced") == ["plan"]
    assert kept(provider) == ["w"]


async def test_a_named_node_counts_with_what_runs_below_it(
    tools: Tools, planner: Policy, provider: Provider
) -> None:
    team = chain({"think": plan_and_write(tools), "tell": tools.asks(tools.chat(), "t")})
    assert await play(planner, team, train=["think"]) == ["plan", "write"]
    assert kept(provider) == ["t"]


async def test_each_node_with_a_policy_of_its_own(
    tools: Tools, planner: Policy, critic: Policy, provider: Provider
) -> None:
    nodes = {name: tools.asks(tools.chat(), name) for name in ("plan", "judge", "write")}
    graph = chain(nodes)

    @rollout(train={"plan": planner, "judge": critic})
    async def answer(marker: str) -> tuple[str, dict[str, float]]:
        state = await graph.ainvoke(question(marker))
        return state["messages"][-1].text, {planner.name: 1.0, critic.name: 0.5}

    trajectories = await answer.play_all("m1")
    assert await nodes_of(planner, trajectories[planner.name]) == ["plan"]
    assert await nodes_of(critic, trajectories[critic.name]) == ["judge"]
    assert [each.reward for each in trajectories.values()] == [1.0, 0.5]
    assert kept(provider) == ["write"]


async def test_a_chat_model_goes_to_its_policy(planner: Policy, critic: Policy) -> None:
    tools = Tools(chat=lambda: chat_model(planner), openai=dict, model="", defaults={}, sync=False)
    nodes = {"plan": tools.asks(tools.chat()), "judge": tools.asks(chat_model(critic))}
    graph = chain(nodes)

    @rollout(planner, critic)
    async def answer(marker: str) -> None:
        await graph.ainvoke(question(marker))

    trajectories = await answer.play_all("m1")
    assert await nodes_of(planner, trajectories[planner.name]) == ["plan"]
    assert await nodes_of(critic, trajectories[critic.name]) == ["judge"]


async def test_a_policy_that_the_rollout_was_not_given(
    tools: Tools, planner: Policy, critic: Policy
) -> None:
    graph = trace(plan_and_write(tools), train={"plan": critic})
    with pytest.raises(ConfigError, match=f"node plan is to be served by '{critic.name}'"):
        await play(planner, graph)


async def test_a_rollout_without_a_trained_call_fails(tools: Tools, planner: Policy) -> None:
    graph = plan_and_write(tools)

    @rollout(planner, train=["plam"])
    async def answer(marker: str) -> float:
        await graph.ainvoke(question(marker))
        return 1.0

    trajectory = await answer.play("m1")
    assert trajectory.status is TrajectoryStatus.FAILED
    assert "came from 'plan' (1), 'write' (1)" in str(trajectory.error)


async def test_outside_rollouts_nothing_changes(tools: Tools, provider: Provider) -> None:
    graph = trace(plan_and_write(tools), train=["plan"])
    await graph.ainvoke(question("m1"))
    assert kept(provider) == ["p", "w"]


def test_a_node_that_the_graph_has_not(tools: Tools) -> None:
    with pytest.raises(ConfigError, match=r"no node 'plam'\. Its nodes are 'plan', 'write'"):
        trace(plan_and_write(tools), train=["plam"])


def test_names_in_one_string(tools: Tools) -> None:
    with pytest.raises(ConfigError, match="is one string"):
        trace(plan_and_write(tools), train="plan")


def test_two_models_of_one_name(planner: Policy) -> None:
    with pytest.raises(ConfigError, match="two models are named"):
        rollout(planner, planner.model_copy())


def test_no_model() -> None:
    with pytest.raises(ConfigError, match="no model"):
        rollout()
