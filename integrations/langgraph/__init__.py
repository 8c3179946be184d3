"""LangGraph: decorate the function that runs an existing graph, and train it."""

from integrations.langgraph.decorator import AsyncRollout, Rollout, rollout
from integrations.langgraph.models import chat_model
from integrations.langgraph.openpipe import init_chat_model, wrap_rollout
from integrations.langgraph.selection import trace

__all__ = [
    "AsyncRollout",
    "Rollout",
    "chat_model",
    "init_chat_model",
    "rollout",
    "trace",
    "wrap_rollout",
]
