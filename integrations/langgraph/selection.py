# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Which of a graph's nodes are served by which policy."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TypeVar, cast, overload

from langchain_core.runnables import Runnable
from langgraph.pregel import Pregel

from art_core.errors import ConfigError
from art_core.rollouts import TrainableModel
from integrations.langgraph.tracker import TRAIN_KEY, Caller

Train = Literal["all", "traced"] | Sequence[str] | Mapping[str, TrainableModel[Any]]
"""Every node; only those wrapped with `trace`; those named; or each with its own policy."""

MAIN = ""
"""Stands for the first model of the rollout, where no policy is named."""

_node_policy: ContextVar[str | None] = ContextVar("art_langgraph_node_policy", default=None)

G = TypeVar("G", bound=Pregel[Any, Any, Any, Any])
N = TypeVar("N", bound=Callable[..., Any])


def named(train: Sequence[str] | Mapping[str, TrainableModel[Any]]) -> dict[str, str]:
    """Node names with the names of their policies (`MAIN` where there is only one)."""
    if isinstance(train, str):
        raise ConfigError(
            f"train={train!r} is one string",
            f"Name nodes in a list: train=[{train!r}]. Whole graphs take 'all' or 'traced'.",
        )
    if isinstance(train, Mapping):
        return {node: model.name for node, model in train.items()}
    return dict.fromkeys(train, MAIN)


def policy_of(caller: Caller, train: Train) -> str | None:
    """The name of the policy that serves this call; None: its own model does, untouched."""
    wrapped = _node_policy.get()
    if wrapped is not None:
        return wrapped
    if caller.train is not None:
        choice = caller.train
    elif train == "all":
        return MAIN
    elif train == "traced":
        return None
    else:
        choice = named(train)
    return next((choice[node] for node in reversed(caller.nodes) if node in choice), None)


@overload
def trace(target: G, *, train: Sequence[str] | Mapping[str, TrainableModel[Any]]) -> G: ...
@overload
def trace(target: N, *, train: TrainableModel[Any] | None = None) -> N: ...
def trace(target: Any, *, train: Any = None) -> Any:
    """Choose which nodes of a graph are served and trained by a policy.

    Given a compiled graph and node names, returns a copy of it in which, inside a
    rollout, only the calls of those nodes (and of what runs below them) go to the
    policy; the others keep the model that they name. With a mapping each node
    has its own policy, all of which the rollout must have been given.

    Given a node (a function or a Runnable), returns a node whose calls go to the
    rollout's policy, or to the one given. Whether other nodes are served too is up
    to the rollout: ``@rollout(model, train="traced")`` leaves them alone.

    Outside a rollout neither changes anything.

    Raises:
        ConfigError: no such node in the graph, or a target that is neither.
    """
    if isinstance(target, Pregel):
        graph = cast("Pregel[Any, Any, Any, Any]", target)
        if train is None:
            raise ConfigError("trace(graph) names no nodes", "Pass train=['node', …].")
        choice = named(train)
        _check_nodes(graph, choice)
        return graph.with_config(metadata={TRAIN_KEY: choice})
    policy = MAIN if train is None else train.name
    if isinstance(target, Runnable):
        return TracedRunnable(cast("Runnable[Any, Any]", target), policy)
    if callable(target):
        return _wrap(target, policy)
    raise ConfigError(
        f"trace() was given {target!r:.100}",
        "It takes a compiled graph, a node function or a Runnable.",
    )


def _check_nodes(graph: Pregel[Any, Any, Any, Any], choice: Mapping[str, str]) -> None:
    graphs: list[Any] = [graph, *(sub for _, sub in graph.get_subgraphs(recurse=True))]
    nodes = {name for each in graphs if isinstance(each, Pregel) for name in each.nodes}
    known = {name for name in nodes if not name.startswith("__")}
    if unknown := sorted(set(choice) - known):
        raise ConfigError(
            f"the graph has no node {', '.join(map(repr, unknown))}",
            f"Its nodes are {', '.join(sorted(map(repr, known)))}.",
        )


@contextmanager
def _serving(policy: str) -> Generator[None]:
    token = _node_policy.set(policy)
    try:
        yield
    finally:
        _node_policy.reset(token)


def _wrap(node: Callable[..., Any], policy: str) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(node):

        @functools.wraps(node)
        async def traced_async(*args: Any, **kwargs: Any) -> Any:
            with _serving(policy):
                return await node(*args, **kwargs)

        return traced_async

    @functools.wraps(node)
    def traced(*args: Any, **kwargs: Any) -> Any:
        with _serving(policy):
            return node(*args, **kwargs)

    return traced


class TracedRunnable(Runnable[Any, Any]):
    """A Runnable whose model calls go to one policy."""

    def __init__(self, bound: Runnable[Any, Any], policy: str) -> None:
        self.bound = bound
        self.policy = policy
        self.name = bound.get_name()

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        with _serving(self.policy):
            return self.bound.invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        with _serving(self.policy):
            return await self.bound.ainvoke(input, config, **kwargs)
