"""Who is asking: follows a graph's run through LangChain's own callbacks.

LangGraph puts the node, step and checkpoint namespace of a run into the metadata
that reaches every callback handler. The handler here runs inline, in the context
of the code that is about to send the model's request, so what it notes in a
context variable is what that request sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers.context import register_configure_hook
from langgraph.errors import GraphBubbleUp, GraphRecursionError

TRAIN_KEY = "art_train"
"""Metadata key under which `trace` leaves a graph's choice of nodes."""
POLICY_KEY = "art_policy"
"""Metadata key under which `chat_model` leaves the name of its policy."""

_TAGS = {
    "langgraph_node": "node",
    "langgraph_step": "step",
    "langgraph_checkpoint_ns": "checkpoint_ns",
    "thread_id": "thread_id",
    "lc_agent_name": "agent",
}


@dataclass(slots=True)
class ModelRun:
    """One run of a chat model; it has its node's metadata until it ends."""

    id: UUID
    metadata: Mapping[str, Any]
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """What is known about the code that makes a call."""

    nodes: tuple[str, ...] = ()
    """The nodes it is in, outermost graph first; empty outside a graph."""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    policy: str | None = None
    """Where the model is one of `chat_model`: the name of its policy."""
    train: Mapping[str, str] | None = None
    """The choice of `trace` on the graph that runs: node to policy, or None."""


tracker: ContextVar[RunTracker | None] = ContextVar("art_langgraph_tracker", default=None)
_model_run: ContextVar[ModelRun | None] = ContextVar("art_langgraph_model_run", default=None)


class RunTracker(BaseCallbackHandler):
    """Notes the model runs of one rollout, and where an exception came from."""

    run_inline = True

    def __init__(self) -> None:
        self.recursion_limit_hit = False
        self._model_runs: dict[UUID, ModelRun] = {}
        self._nodes: dict[UUID, str] = {}
        self._failures: list[tuple[BaseException, str]] = []

    def failed_node(self, error: BaseException) -> str | None:
        """The innermost node that ``error``, or what it was raised from, came out of."""
        link: BaseException | None = error
        while link is not None:
            for known, node in self._failures:
                if known is link:
                    return node
            link = link.__cause__ or link.__context__
        return None

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[Any]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        run = ModelRun(run_id, metadata or {})
        self._model_runs[run_id] = run
        _model_run.set(run)

    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.on_chat_model_start(serialized, [], run_id=run_id, metadata=metadata)

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        if run := self._model_runs.pop(run_id, None):
            run.ended = True

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        if run := self._model_runs.pop(run_id, None):
            run.ended = True

    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: dict[str, Any],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if metadata and (node := metadata.get("langgraph_node")):
            self._nodes[run_id] = node

    def on_chain_end(self, outputs: dict[str, Any], *, run_id: UUID, **kwargs: Any) -> None:
        self._nodes.pop(run_id, None)

    def on_chain_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        node = self._nodes.pop(run_id, None)
        if isinstance(error, GraphBubbleUp):  # an interrupt, not a failure
            return
        if node is not None:
            self._failures.append((error, node))
        if isinstance(error, GraphRecursionError) and parent_run_id is None:
            self.recursion_limit_hit = True


@cache
def install() -> None:
    """Have LangChain ask our context variable for a handler; there is no way back, and
    while the variable is unset it changes nothing."""
    register_configure_hook(tracker, inheritable=True)


def caller() -> Caller:
    """Who is running here: the model run under way, or else the node."""
    run = _model_run.get()
    if run is not None and not run.ended:
        return _describe(run.metadata, run.id)
    config = var_child_runnable_config.get()
    return _describe((config or {}).get("metadata") or {}, None)


def _describe(metadata: Mapping[str, Any], run_id: UUID | None) -> Caller:
    namespace = str(metadata.get("langgraph_checkpoint_ns", ""))
    nodes = tuple(part.split(":")[0] for part in namespace.split("|") if part)
    tags = {name: str(metadata[key]) for key, name in _TAGS.items() if key in metadata}
    if run_id is not None:
        tags["run_id"] = str(run_id)
    return Caller(
        nodes=nodes,
        tags=tags,
        policy=metadata.get(POLICY_KEY),
        train=metadata.get(TRAIN_KEY),
    )
