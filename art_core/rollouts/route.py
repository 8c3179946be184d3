"""Where a model call made inside a rollout goes: the seam between capture and its users.

One context variable is the whole of in-process attribution. `TrainableModel.rollout`
sets it to a router that always answers with its own ticket, `untraced` sets it to
None, and a framework adapter may set one that looks at who is asking (a graph's
node, an agent's name) to name the call, to send it to another policy's rollout, or
to leave it alone. The capture asks it once for each request that it could redirect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from art_core.rollouts.backend import RolloutTicket

TAGS_HEADER = "x-art-tags"
"""Carries `Route.tags` to the gateway, as a JSON object of strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where one call goes, and its names."""

    ticket: RolloutTicket | None
    """The rollout that it belongs to; None: it goes where the agent meant it to, untouched."""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names for its record. Training never depends on them."""


Router = Callable[[], Route]

current_router: ContextVar[Router | None] = ContextVar("art_core_router", default=None)
"""None outside rollouts and inside `untraced`: nothing is captured."""
