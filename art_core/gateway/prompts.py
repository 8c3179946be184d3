"""Messages to prompt tokens, going on from recorded tokens wherever possible."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from hashlib import blake2b

from art_core.chat.protocol import ChatFormat
from art_core.errors import GatewayError
from art_core.gateway.conversations import Continuation, Conversations
from art_core.trajectories import Completion, Message, Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the engine is asked to continue, and what it says."""

    token_ids: list[int]
    messages: list[Message]
    tools: list[Tool] | None = None
    parent: Completion | None = None
    """The completion whose prompt and sampled tokens ``token_ids`` begins with."""
    raw: bool = False
    """Not a conversation: text or tokens that the model just goes on with."""

    def digest(self) -> bytes:
        """Equal for prompts of equal tokens."""
        return blake2b(array("I", self.token_ids).tobytes(), digest_size=16).digest()


def chat_prompt(
    chat: ChatFormat,
    messages: list[Message],
    tools: list[Tool] | None,
    conversations: Conversations | None,
) -> Prompt:
    """The prompt of a chat request; ``conversations``: those of its rollout.

    Raises:
        ChatError: the chat format can't express the messages.
    """
    found = conversations.find(messages, tools) if conversations is not None else None
    bridged = _bridge(chat, found) if found is not None else None
    if found is None or bridged is None:
        rendered = chat.render(messages, tools)
        return Prompt(token_ids=rendered, messages=messages, tools=tools)
    return Prompt(token_ids=bridged, messages=messages, tools=tools, parent=found.parent)


def _bridge(chat: ChatFormat, found: Continuation) -> list[int] | None:
    parent = found.parent
    recorded = parent.prompt_token_ids + parent.completion_token_ids
    token_ids = chat.bridge(
        recorded,
        [*parent.messages, parent.response],
        found.new_messages,
        parent.tools,
        sampled=len(parent.completion_token_ids),
    )
    if token_ids is not None and token_ids[: len(recorded)] != recorded:
        raise GatewayError(
            f"{type(chat).__name__}.bridge changed the recorded tokens of completion {parent.id}",
            "This is a bug in the chat format: a bridged prompt must begin with them.",
        )
    return token_ids
