"""Messages as agents hold them: dictionaries, or the client library's Choice objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, PlainSerializer, WithJsonSchema

from art_core.errors import TrajectoryError
from art_core.trajectories.completion import Message

if TYPE_CHECKING:
    from openai.types.chat.chat_completion import Choice

COMPLETION_ID_FIELD = "completion_id"
"""The extra field of every choice that the gateway answers with: its record's id."""


def is_choice(item: object) -> bool:
    """Whether ``item`` is an openai ``Choice`` (told without importing openai)."""
    cls = type(item)
    return cls.__name__ == "Choice" and cls.__module__.startswith("openai.")


def choice_completion_id(choice: Choice) -> str | None:
    """The id of the record behind a choice, or None where the gateway didn't make it."""
    value = getattr(choice, COMPLETION_ID_FIELD, None)
    return value if isinstance(value, str) else None


def as_message(item: Message | Choice) -> Message:
    """A message dictionary, with a choice's message unwrapped."""
    if isinstance(item, dict):
        return item
    return cast("Message", item.message.model_dump(mode="json", exclude_none=True))


def _accept(item: object) -> object:
    if is_choice(item):
        return item
    if isinstance(item, dict):
        fields = cast("dict[str, Any]", item)
        if "role" in fields:
            return fields
        if "message" in fields and "finish_reason" in fields:
            from openai.types.chat.chat_completion import Choice

            return Choice.model_validate(fields)
    elif isinstance(item, BaseModel) and hasattr(item, "role"):
        return item.model_dump(mode="json", exclude_none=True)
    raise TrajectoryError(
        f"messages_and_choices holds {item!r:.200}",
        "Each item must be a message dictionary with a 'role', or a Choice of the openai client.",
    )


def _dump(item: object) -> object:
    return cast("Choice", item).model_dump(mode="json") if is_choice(item) else item


if TYPE_CHECKING:
    MessageOrChoice = Message | Choice
else:
    MessageOrChoice = Annotated[
        Any,
        BeforeValidator(_accept),
        PlainSerializer(_dump),
        WithJsonSchema({"type": "object"}),
    ]

MessagesAndChoices = list[MessageOrChoice]
