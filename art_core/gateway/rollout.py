"""One rollout as the gateway sees it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from art_core.engines.protocol import AdapterRef
from art_core.gateway.attempts import Attempts
from art_core.gateway.conversations import Conversations
from art_core.gateway.kept import KeptResponses
from art_core.gateway.policy import Policy, version_of
from art_core.gateway.texts import Texts
from art_core.rollouts.backend import RolloutMode
from art_core.trajectories import Completion

if TYPE_CHECKING:
    from art_core.gateway.call import Call

KEY_PREFIX = "art-"


@dataclass(eq=False, slots=True, kw_only=True)
class OpenRollout:
    """A rollout that is being served. Changed only by the gateway's own thread."""

    id: str = field(default_factory=lambda: secrets.token_hex(16))
    key: str = field(init=False)
    """The API key that attributes a call to this rollout."""
    policy: Policy
    adapter: AdapterRef | None
    """Pinned: what the policy served when the rollout was opened."""
    mode: RolloutMode
    seed: int
    tags: Mapping[str, str]
    closed: bool = False
    completions: dict[str, Completion] = field(default_factory=dict[str, Completion])
    """By id, in the order in which they were recorded."""
    conversations: Conversations = field(default_factory=Conversations)
    texts: Texts = field(init=False)
    responses: KeptResponses = field(default_factory=lambda: KeptResponses(limit=10_000))
    attempts: Attempts = field(default_factory=Attempts)
    calls: set[Call] = field(default_factory=set["Call"])
    """In flight."""
    prompts_seen: dict[bytes, int] = field(default_factory=dict[bytes, int])

    def __post_init__(self) -> None:
        self.texts = Texts(self.policy.chat)
        self.key = f"{KEY_PREFIX}{self.id}-{secrets.token_hex(16)}"

    @property
    def version(self) -> int:
        return version_of(self.adapter)

    def record(self, completions: Iterable[Completion], *, raw: bool) -> None:
        """Keep completions, or what became of them; ``raw``: they aren't conversations."""
        recorded = self.texts if raw else self.conversations
        for completion in completions:
            before = self.completions.get(completion.id)
            if before is not None and before.may_be_trained:
                recorded.discard(before)
            if completion.may_be_trained:
                recorded.add(completion)
            self.completions[completion.id] = completion

    def count_prompt(self, digest: bytes) -> int:
        """How many calls before this one had the same prompt."""
        seen = self.prompts_seen.get(digest, 0)
        self.prompts_seen[digest] = seen + 1
        return seen


def rollout_of_key(key: str) -> str | None:
    """The rollout id in a minted key, or None if it isn't one."""
    prefix, _, rest = key.partition("-")
    rollout_id, _, secret = rest.partition("-")
    minted = f"{prefix}-" == KEY_PREFIX and len(rollout_id) == 32 and len(secret) == 32
    return rollout_id if minted else None
