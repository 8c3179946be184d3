"""From examples to tokens: checked, counted, and nothing dropped in silence."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from art_core.chat import ChatFormat, canonical_key
from art_core.chat.normalise import normalise
from art_core.config import SftConfig
from art_core.errors import ChatError, ExampleError
from art_core.sft.conversations import TokenRow, cut_row, is_answer, token_rows
from art_core.sft.reading import Example, ExampleSource, Unreadable, read_source
from art_core.trajectories import History, Message

ProblemKind = Literal[
    "malformed", "empty", "unanswered", "nothing to learn", "inexpressible", "too long"
]
IsRecorded = Callable[[History], bool]
"""Whether a history is as the model that is trained has sampled it."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an example isn't learned from."""

    where: str
    kind: ProblemKind
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """An example in tokens."""

    where: str
    messages: Sequence[Message]
    rows: tuple[TokenRow, ...]
    keys: frozenset[str]
    """Of each answer with all that comes before it, blind to case and blanks."""
    recorded: bool
    """The tokens are those that were sampled in a rollout."""

    @property
    def tokens(self) -> int:
        return sum(len(row.token_ids) for row in self.rows)

    @property
    def trained_tokens(self) -> int:
        return sum(sum(row.trained) for row in self.rows)


@dataclass(slots=True)
class Prepares:
    """What became of the examples of one source."""

    examples: list[Prepared] = field(default_factory=list[Prepared])
    problems: list[Problem] = field(default_factory=list[Problem])
    duplicates: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Examples that say the same as an earlier one; learned all the same."""

    def lines(self) -> list[str]:
        """The report, to print."""
        trained = sum(example.trained_tokens for example in self.examples)
        tokens = sum(example.tokens for example in self.examples)
        lines = [f"{len(self.examples)} examples, {tokens} tokens, {trained} of them learned"]
        recorded = sum(example.recorded for example in self.examples)
        if recorded:
            lines.append(f"{recorded} of them in the tokens that were sampled in their rollouts")
        kinds = Counter(problem.kind for problem in self.problems)
        if kinds:
            counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            lines.append(f"left out: {counts}")
            lines += _shown([f"  {p.where}: {p.kind}: {p.reason}" for p in self.problems])
        if self.duplicates:
            lines.append(f"{len(self.duplicates)} are duplicates, and weigh double:")
            lines += _shown([f"  {one} is {other}" for one, other in self.duplicates])
        return lines


def prepare(
    source: ExampleSource,
    chat: ChatFormat,
    config: SftConfig,
    *,
    context_length: int,
    is_recorded: IsRecorded | None = None,
    on_example: Callable[[int], None] | None = None,
) -> Prepares:
    """The examples as the model would have had them in a rollout.

    Args:
        context_length: tokens that the model can read.
        is_recorded: of trajectories that it knows, the recorded tokens are learned as
            they are; all else is rendered.
        on_example: told how many are done.

    Raises:
        ExampleError: one can't be learned from and ``config`` says to refuse it, or
            none can; names the lines.
    """
    prepares = Prepares()
    longest = min(config.max_length or context_length, context_length)
    first_of: dict[frozenset[str], str] = {}
    for number, example in enumerate(read_source(source), start=1):
        result = _prepare(example, chat, longest, is_recorded)
        if isinstance(result, Problem):
            prepares.problems.append(result)
        else:
            first = first_of.setdefault(result.keys, result.where)
            if first != result.where:
                prepares.duplicates.append((result.where, first))
            prepares.examples.append(result)
        if on_example is not None:
            on_example(number)
    _apply_policy(prepares, config)
    return prepares


def check_no_leak(training: Sequence[Prepared], validation: Sequence[Prepared]) -> None:
    """Refuse a validation example that training says too, if only as part of a longer one.

    Raises:
        ExampleError: names the pairs.
    """
    where = {key: example.where for example in training for key in example.keys}
    leaks = [
        (example.where, where[key])
        for example in validation
        for key in sorted(example.keys)
        if key in where
    ]
    if leaks:
        pairs = ", ".join(f"{one} is in {other}" for one, other in leaks[:_SHOWN])
        raise ExampleError(
            f"{len(leaks)} validation answers are learned in training: {pairs}",
            "Remove them from one side: a loss on examples that were learned says nothing.",
        )


def _prepare(
    example: Example | Unreadable, chat: ChatFormat, longest: int, is_recorded: IsRecorded | None
) -> Prepared | Problem:
    if isinstance(example, Unreadable):
        return Problem(example.where, "malformed", example.reason)
    unusable = _why_not(example)
    if unusable is not None:
        return unusable
    history = example.history
    recorded = history is not None and is_recorded is not None and is_recorded(history)
    try:
        normalise(example.messages)  # says which message it is that can't be used
        keys = _keys(example)
        if recorded and history is not None:
            row = cut_row(history.token_ids, history.loss_mask)
            rows = [] if row is None else [row]
        else:
            rows = token_rows(chat, example.messages, example.tools, example.learned)
    except ChatError as error:
        return Problem(example.where, "inexpressible", str(error))
    if not rows:
        return Problem(example.where, "nothing to learn", "none of its tokens is trained")
    tokens = max(len(row.token_ids) for row in rows)
    if tokens > longest:
        return Problem(example.where, "too long", f"{tokens} tokens; at most {longest} fit")
    return Prepared(example.where, example.messages, tuple(rows), keys, recorded)


def _why_not(example: Example) -> Problem | None:
    """What makes an example useless, whatever the model."""
    if not example.messages:
        return Problem(example.where, "empty", "it has no messages")
    if not any(map(is_answer, example.messages)):
        return Problem(example.where, "unanswered", "no message is the assistant's")
    if not any(example.learned[1:]):
        reason = (
            "its only answer comes first, to nothing"
            if example.learned[0]
            else "all its answers are context (weight 0, or in the prompt)"
        )
        return Problem(example.where, "nothing to learn", reason)
    for at, message in enumerate(example.messages):
        if example.learned[at] and not any(
            message.get(name) for name in ("content", "tool_calls", "function_call", "refusal")
        ):
            return Problem(
                example.where, "empty", f"messages[{at}] is an answer without text and tool calls"
            )
    return None


def _keys(example: Example) -> frozenset[str]:
    keys: list[str] = []
    digest = hashlib.sha256()
    for message, learned in zip(example.messages, example.learned, strict=True):
        digest.update(_folded(message).encode())
        if learned:
            keys.append(digest.hexdigest())
    return frozenset(keys)


def _folded(message: Message) -> str:
    """What a message says, without ids, case and blanks."""
    role, name, text, calls, _ = json.loads(canonical_key(message))
    said: list[Any] = [role, name, " ".join(text.split()), [call[1:] for call in calls]]
    return json.dumps(said).casefold()


def _apply_policy(prepares: Prepares, config: SftConfig) -> None:
    refused = [
        problem
        for problem in prepares.problems
        if (config.long_examples if problem.kind == "too long" else config.bad_examples) == "refuse"
    ]
    if refused:
        kinds = Counter(problem.kind for problem in refused)
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        shown = "; ".join(_shown([f"{p.where} is {p.kind}: {p.reason}" for p in refused]))
        raise ExampleError(
            f"{len(refused)} examples can't be learned from ({counts}): {shown}",
            "Correct them, or set bad_examples='skip' (long_examples='skip' for those that are "
            "too long).",
        )
    if not prepares.examples:
        raise ExampleError(
            f"there are no examples to learn from; {len(prepares.problems)} were left out",
            "Give at least one conversation with an answer in it.",
        )


def _shown(lines: list[str]) -> list[str]:
    rest = len(lines) - _SHOWN
    return lines[:_SHOWN] + ([f"… and {rest} more"] if rest > 0 else [])
