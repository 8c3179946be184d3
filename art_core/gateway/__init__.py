"""The OpenAI-compatible server that owns the tokens and records every call."""

from art_core.gateway.access import ROLLOUT_HEADER
from art_core.gateway.policy import Policy
from art_core.gateway.server import GatewayServer

__all__ = ["ROLLOUT_HEADER", "GatewayServer", "Policy"]
