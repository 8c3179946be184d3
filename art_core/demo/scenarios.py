"""Questions with known answers, made from the documentation itself."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass

from art_core.demo.corpus import Corpus, Page
from art_core.errors import ConfigError

MIN_WORDS = 5
MAX_CHARACTERS = 110
"""Of the sentence that a question is made of: short questions train quickly."""
HELD_OUT_SHARE = 0.25
MIN_TRAINING, MIN_HELD_OUT = 16, 8
"""Questions that there must be for a run to mean anything."""

_SENTENCE_END = re.compile(r"(?<!e\.g)(?<!i\.e)[.!?](?=\s+[^a-z])")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A question about a function, and the name of that function."""

    question: str
    function: str


@dataclass(frozen=True, slots=True)
class Scenarios:
    """Questions to learn from and questions to be measured by, with no function and no
    sentence in common."""

    training: tuple[Scenario, ...]
    held_out: tuple[Scenario, ...]


def make_scenarios(corpus: Corpus, *, held_out: int) -> Scenarios:
    """One question for each function whose documentation begins with a sentence of its own.

    Which side a function falls on, and the order of each side, depend on a hash of its
    name alone: another Python version adds and removes questions but moves none. At most
    ``held_out`` questions are held out.

    Raises:
        ConfigError: the corpus has too few functions that questions can be made of.
    """
    sentences = {page: first_sentence(page.text) for page in corpus.functions}
    uses = Counter(sentence.lower() for sentence in sentences.values())
    training: list[Scenario] = []
    measured: list[Scenario] = []
    for page in sorted(sentences, key=lambda page: _hash(page.name)):
        sentence = sentences[page]
        # A sentence that several functions have in common has no one answer.
        if uses[sentence.lower()] > 1 or not _makes_a_question(page, sentence):
            continue
        side = measured if _hash(page.name) < HELD_OUT_SHARE * 2**64 else training
        side.append(Scenario(_question(corpus.title, sentence), page.name))
    if len(training) < MIN_TRAINING or len(measured) < MIN_HELD_OUT:
        raise ConfigError(
            f"only {len(training)} training and {len(measured)} held-out questions can be made "
            f"from the documentation of {corpus.title!r}; {MIN_TRAINING} and {MIN_HELD_OUT} "
            "are needed",
            "Choose a package with more documented functions, numpy for instance.",
        )
    return Scenarios(tuple(training), tuple(measured[:held_out]))


def first_sentence(documentation: str) -> str:
    """The first sentence of a docstring, on one line and without its full stop.

    A signature on the first line, as C functions have it, is passed over.
    """
    for paragraph in documentation.split("\n\n"):
        line = " ".join(paragraph.split())
        if re.match(r"[\w.]+\(.*\)( *->.*)?$", line):
            continue
        return _SENTENCE_END.split(line, maxsplit=1)[0].rstrip(".!?: ")
    return ""


def _makes_a_question(page: Page, sentence: str) -> bool:
    """Whether a sentence tells what the function does without naming it as code."""
    own_name = page.name.rsplit(".", 1)[-1]
    return (
        len(sentence) <= MAX_CHARACTERS
        and len(sentence.split()) >= MIN_WORDS
        and "->" not in sentence
        and page.name not in sentence
        and f"{own_name}(" not in sentence
    )


def _question(title: str, sentence: str) -> str:
    described = sentence[0].lower() + sentence[1:]
    return f"I need something in {title} that will {described}. Which function is that?"


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
