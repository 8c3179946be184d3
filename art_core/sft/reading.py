"""Conversations to learn from, whichever way they are written down.

A file has one JSON object a line; each is one of:

- ``{"messages": […], "tools": […]}``: OpenAI's fine-tuning format, and the conversational
  format of Hugging Face datasets (``tools`` may be JSON text). An assistant message with
  ``"weight": 0`` is context.
- ``{"prompt": […], "completion": […]}``: TRL's; only the completion is learned.
- a `Trajectory` or a `TrajectoryGroup`, as in a run's ``trajectories/``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from art_core.errors import ArtError, ExampleError
from art_core.runs.files import storage_errors
from art_core.sft.conversations import is_answer
from art_core.trajectories import (
    History,
    Message,
    Tool,
    Trajectory,
    TrajectoryGroup,
    TrajectoryStatus,
    as_message,
)

ExampleItem = Mapping[str, Any] | Trajectory | TrajectoryGroup
ExampleSource = str | Path | Iterable[ExampleItem]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One conversation."""

    where: str
    """``file.jsonl:12``, or its place in what was given."""
    messages: Sequence[Message]
    tools: Sequence[Tool] | None
    learned: Sequence[bool]
    """For each message, whether it's an answer to learn."""
    history: History | None = None
    """Where it was recorded in a rollout, with its tokens."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line, or an item, that isn't an example."""

    where: str
    reason: str


def read_source(source: ExampleSource) -> Iterator[Example | Unreadable]:
    """The examples of a file, or of an iterable.

    Raises:
        ExampleError: there is no such file.
        StorageError: it can't be read.
    """
    if isinstance(source, str | Path):
        yield from _read_file(Path(source))
        return
    for at, item in enumerate(source):
        yield from _read(item, f"examples[{at}]")


def _read_file(path: Path) -> Iterator[Example | Unreadable]:
    if not path.is_file():
        raise ExampleError(f"there is no file {path}", "Name a .jsonl file of conversations.")
    with storage_errors("read", path), path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path.name}:{number}"
            if not line.strip():
                continue
            try:
                item: object = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield Unreadable(where, f"not JSON: {error}")
                continue
            yield from _read(item, where)


def _read(item: object, where: str) -> Iterator[Example | Unreadable]:
    try:
        yield from _examples(item, where)
    except (ValidationError, ArtError, _ShapeError) as error:
        reason = str(error).splitlines()[0] if isinstance(error, ValidationError) else str(error)
        yield Unreadable(where, reason)


class _ShapeError(Exception):
    """What is wrong with the shape of an example."""


def _examples(item: object, where: str) -> Iterator[Example]:
    if isinstance(item, TrajectoryGroup):
        for at, trajectory in enumerate(item.trajectories):
            yield from _of_trajectory(trajectory, f"{where} trajectory {at}")
        return
    if isinstance(item, Trajectory):
        yield from _of_trajectory(item, where)
        return
    if not isinstance(item, Mapping):
        raise _ShapeError(f"a {type(item).__name__}, not an object")
    fields = cast("Mapping[str, Any]", item)
    if "trajectories" in fields:
        if not isinstance(fields["trajectories"], list):
            raise _ShapeError("trajectories isn't a list")
        yield from _examples(TrajectoryGroup.model_validate(fields), where)
    elif "messages_and_choices" in fields or "histories" in fields:
        yield from _examples(Trajectory.model_validate(fields), where)
    elif "messages" in fields:
        messages = _messages(fields["messages"], "messages")
        yield _example(fields, messages, 0, where)
    elif "prompt" in fields and "completion" in fields:
        prompt = _messages(fields["prompt"], "prompt")
        messages = [*prompt, *_messages(fields["completion"], "completion")]
        yield _example(fields, messages, len(prompt), where)
    else:
        raise _ShapeError(
            f"it has the fields {', '.join(map(repr, fields)) or 'none'}, and neither 'messages' "
            "nor 'prompt' and 'completion'"
        )


def _example(fields: Mapping[str, Any], messages: list[Message], first: int, where: str) -> Example:
    learned = [at >= first and _is_learned(m, at) for at, m in enumerate(messages)]
    plain = [{k: v for k, v in m.items() if k != "weight"} for m in messages]
    return Example(where=where, messages=plain, tools=_tools(fields.get("tools")), learned=learned)


def _messages(value: object, name: str) -> list[Message]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise _ShapeError(f"{name} is a {type(value).__name__}, not a list of messages")
    messages: list[Message] = []
    for at, message in enumerate(cast("Sequence[object]", value)):
        if not isinstance(message, Mapping):
            raise _ShapeError(f"{name}[{at}] is a {type(message).__name__}, not an object")
        # Datasets of Arrow columns have every field in every row, most of them null.
        fields = cast("Mapping[str, Any]", message)
        messages.append({key: field for key, field in fields.items() if field is not None})
    return messages


def _is_learned(message: Message, at: int) -> bool:
    weight = message.get("weight", 1)
    if weight not in (0, 1):
        raise _ShapeError(f"messages[{at}].weight is {weight!r}: it must be 0 or 1")
    return is_answer(message) and bool(weight)


def _tools(value: object) -> list[Tool] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else None
        except ValueError as error:
            raise _ShapeError(f"tools isn't JSON: {error}") from error
    if not value:
        return None
    if not isinstance(value, list):
        raise _ShapeError(f"tools is a {type(value).__name__}, not a list")
    return [_tool(tool, at) for at, tool in enumerate(cast("list[object]", value))]


def _tool(tool: object, at: int) -> Tool:
    if not isinstance(tool, dict):
        raise _ShapeError(f"tools[{at}] is a {type(tool).__name__}, not an object")
    return cast("Tool", tool)


def _of_trajectory(trajectory: Trajectory, where: str) -> Iterator[Example]:
    """One example for each history; an answer that several have in common is learned once."""
    if trajectory.status is TrajectoryStatus.FAILED:
        return
    recorded = bool(trajectory.histories)
    seen: set[str] = set()
    histories = trajectory.histories or [
        History(messages_and_choices=trajectory.messages_and_choices, tools=trajectory.tools),
        *trajectory.additional_histories,
    ]
    for at, history in enumerate(histories):
        messages = [as_message(item) for item in history.messages_and_choices]
        learned: list[bool] = []
        for end, message in enumerate(messages, start=1):
            so_far = json.dumps([messages[:end], history.tools], sort_keys=True)
            learned.append(is_answer(message) and so_far not in seen)
            seen.add(so_far)
        yield Example(
            where=where if len(histories) == 1 else f"{where} history {at}",
            messages=messages,
            tools=history.tools,
            learned=learned,
            history=history if recorded and history.token_ids else None,
        )
