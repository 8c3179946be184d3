"""Completions as rows of ``records.sqlite``.

==================  ==========================================================
``seq``             order of writing
``id``              of the completion
``parent_id``       the completion of the same rollout that this one continues
``rollout_id``      NULL: quarantined
``request_id`` …    ``policy``, ``policy_version``, ``status``, ``finish_reason``,
                    ``started_at``, ``finished_at``: as in `Completion`
``call``            JSON: ``messages`` (behind the first ``kept`` of the parent's
                    messages and response), ``tools`` (absent: the parent's),
                    ``sampling``, ``response``, ``tags``, ``parse_errors``
``prompt``          token ids behind the parent's prompt and sampled tokens
``completion``      sampled token ids
``logprobs``        of the sampled tokens
``trainable``       one byte each, 0 or 1; NULL: all 1
==================  ==========================================================

Token ids are unsigned 32-bit integers, logprobs 64-bit floats, both little-endian.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from pydantic_core import from_json, to_json

from art_core.errors import RunDamagedError
from art_core.trajectories import Completion, Message

SCHEMA = """
CREATE TABLE completions (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    parent_id TEXT,
    rollout_id TEXT,
    request_id TEXT NOT NULL,
    policy TEXT NOT NULL,
    policy_version INTEGER NOT NULL,
    status TEXT NOT NULL,
    finish_reason TEXT NOT NULL,
    started_at REAL NOT NULL,
    finished_at REAL NOT NULL,
    call TEXT NOT NULL,
    prompt BLOB NOT NULL,
    completion BLOB NOT NULL,
    logprobs BLOB NOT NULL,
    trainable BLOB
);
CREATE INDEX completions_by_rollout ON completions (rollout_id, seq);
"""

PLAIN_COLUMNS = (
    "id",
    "rollout_id",
    "request_id",
    "policy",
    "policy_version",
    "status",
    "finish_reason",
    "started_at",
    "finished_at",
)
"""Columns that hold a field of `Completion` as it is."""
COLUMNS = (*PLAIN_COLUMNS, "parent_id", "call", "prompt", "completion", "logprobs", "trainable")

Row = tuple[Any, ...]
"""Values of `COLUMNS`."""


def encode(completion: Completion, parent: Completion | None) -> Row:
    """A completion as a row.

    Raises:
        ValueError: the completion doesn't continue ``parent``.
    """
    messages = completion.messages
    prompt = completion.prompt_token_ids
    call: dict[str, Any] = {
        "sampling": completion.sampling.model_dump(mode="json", exclude_defaults=True),
        "response": completion.response,
    }
    if completion.tags:
        call["tags"] = completion.tags
    if completion.parse_errors:
        call["parse_errors"] = completion.parse_errors
    if parent is None or completion.tools != parent.tools:
        call["tools"] = completion.tools
    if parent is not None:
        if parent.rollout_id != completion.rollout_id:
            raise ValueError(f"{completion.id} and its parent {parent.id} differ in rollout_id")
        prompt = _behind(prompt, parent.prompt_token_ids)
        prompt = _behind(prompt, parent.completion_token_ids)
        call["kept"] = _shared(messages, [*parent.messages, parent.response])
        messages = messages[call["kept"] :]
    call["messages"] = messages
    return (
        *(getattr(completion, name) for name in PLAIN_COLUMNS),
        None if parent is None else parent.id,
        to_json(call).decode(),
        _pack("I", prompt),
        _pack("I", completion.completion_token_ids),
        _pack("d", completion.logprobs),
        None if all(completion.trainable) else bytes(completion.trainable),
    )


def decode(row: Row, known: Mapping[str, Completion]) -> Completion:
    """The completion of a row; ``known`` has its parent by id.

    Raises:
        RunDamagedError: the row isn't what `encode` writes, or the parent is missing.
    """
    try:
        return _decode(row, known)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunDamagedError(
            f"the record of completion {row[0]!r:.60} is damaged: {error}"
        ) from error


def _decode(row: Row, known: Mapping[str, Completion]) -> Completion:
    fields = dict(zip(COLUMNS, row, strict=True))
    call = from_json(fields["call"])
    prompt = _unpack("I", fields["prompt"])
    sampled = _unpack("I", fields["completion"])
    parent_id = fields["parent_id"]
    if parent_id is not None:
        if parent_id not in known:
            raise RunDamagedError(f"completion {fields['id']} has lost its parent {parent_id}")
        parent = known[parent_id]
        prompt = parent.prompt_token_ids + parent.completion_token_ids + prompt
        before = [*parent.messages, parent.response]
        call["messages"] = before[: call.pop("kept")] + call["messages"]
        call.setdefault("tools", parent.tools)
    trainable = fields["trainable"]
    return Completion(
        **{name: fields[name] for name in PLAIN_COLUMNS},
        **call,
        prompt_token_ids=prompt,
        completion_token_ids=sampled,
        logprobs=_unpack("d", fields["logprobs"]),
        trainable=[True] * len(sampled) if trainable is None else [bool(x) for x in trainable],
    )


def _behind(prompt: list[int], beginning: list[int]) -> list[int]:
    if prompt[: len(beginning)] != beginning:
        raise ValueError("the prompt of a completion doesn't begin with its parent's tokens")
    return prompt[len(beginning) :]


def _shared(messages: Sequence[Message], others: Sequence[Message]) -> int:
    """How many leading messages are the same to the letter (1 isn't 1.0, or true)."""
    same = (to_json(one) == to_json(other) for one, other in zip(messages, others, strict=False))
    return sum(1 for _ in takewhile(bool, same))


def _pack(typecode: str, values: Sequence[float]) -> bytes:
    packed = array(typecode, values)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _unpack(typecode: str, blob: bytes) -> list[Any]:
    packed: array[Any] = array(typecode)
    packed.frombytes(blob)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tolist()
