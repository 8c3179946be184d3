"""Messages to tokens, and sampled tokens to messages, for any Hugging Face chat template."""

from art_core.chat.format import TemplateFormat, chat_format_for
from art_core.chat.normalise import canonical_key
from art_core.chat.protocol import ChatFormat, Delta, ParsedMessage, StreamParser

__all__ = [
    "ChatFormat",
    "Delta",
    "ParsedMessage",
    "StreamParser",
    "TemplateFormat",
    "canonical_key",
    "chat_format_for",
]
