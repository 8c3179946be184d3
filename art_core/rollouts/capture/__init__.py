"""Capture: model calls that an agent makes in this process go to the policy instead.

- `target`: which requests are redirected, and what the redirected request is;
- `clients`: the clients that send it, past the proxies and transports of the agent's own;
- `patches`: `httpx` and `httpx2` patched from the first open rollout to the last.
"""

from art_core.rollouts.capture.patches import capturing, untraced
from art_core.rollouts.capture.target import Capture

__all__ = ["Capture", "capturing", "untraced"]
