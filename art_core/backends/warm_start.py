"""Examples, read for one served model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from art_core.backends.base import Base
from art_core.chat import canonical_key
from art_core.config import SftConfig
from art_core.errors import UnknownCompletionError
from art_core.runs.records import RecordStore
from art_core.sft.examples import Prepares, check_no_leak, prepare
from art_core.sft.reading import ExampleSource
from art_core.sft.run import SftData
from art_core.trajectories import History, as_message


@dataclass(frozen=True, slots=True)
class ReadExamples:
    """What was read, and what became of it."""

    data: SftData
    reports: Sequence[tuple[str, Prepares]]
    """By side: training, validation."""


def read_examples(
    base: Base,
    records: RecordStore,
    examples: ExampleSource,
    validation: ExampleSource | None,
    config: SftConfig,
) -> ReadExamples:
    """Examples in this base's tokens; recorded ones as they were sampled.

    Raises:
        ExampleError: see `prepare` and `check_no_leak`.
    """

    def read(source: ExampleSource) -> Prepares:
        return prepare(
            source,
            base.chat,
            config,
            context_length=base.engine.info.context_length,
            is_recorded=lambda history: _is_recorded(history, records),
        )

    training = read(examples)
    if validation is None:
        return ReadExamples(SftData(training=training.examples), [("training", training)])
    held_out = read(validation)
    check_no_leak(training.examples, held_out.examples)
    data = SftData(training=training.examples, validation=held_out.examples)
    return ReadExamples(data, [("training", training), ("validation", held_out)])


def _is_recorded(history: History, records: RecordStore) -> bool:
    """Whether its completions are known here, and it still says what they said."""
    if not history.completion_ids:
        return False
    try:
        *_, last = records.by_ids(history.completion_ids)
    except UnknownCompletionError:
        return False
    says = [canonical_key(as_message(item)) for item in history.messages_and_choices]
    said = [canonical_key(message) for message in (*last.messages, last.response)]
    return says == said and history.token_ids == [
        *last.prompt_token_ids,
        *last.completion_token_ids,
    ]
