"""Questions made from documentation: answerable, and split without leakage."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from art_core.demo.agent import search
from art_core.demo.corpus import Corpus, Page
from art_core.demo.grading import reciprocal_rank
from art_core.demo.scenarios import Scenario, first_sentence, make_scenarios
from art_core.errors import ConfigError


class TestSplit:
    def test_shares_no_function_and_no_question(self, corpus: Corpus) -> None:
        scenarios = make_scenarios(corpus, held_out=1000)
        for key in ("function", "question"):
            training = {getattr(scenario, key).lower() for scenario in scenarios.training}
            held_out = {getattr(scenario, key).lower() for scenario in scenarios.held_out}
            assert not training & held_out
        everything = scenarios.training + scenarios.held_out
        assert max(Counter(scenario.question for scenario in everything).values()) == 1

    def test_is_large_enough_to_learn_from_and_measure(self, corpus: Corpus) -> None:
        scenarios = make_scenarios(corpus, held_out=80)
        assert len(scenarios.held_out) == 80
        assert len(scenarios.training) > 300

    def test_doesnt_depend_on_the_order_of_pages(self, corpus: Corpus) -> None:
        pages = list(corpus.pages)
        random.Random(1).shuffle(pages)
        shuffled = Corpus(title=corpus.title, pages=tuple(pages))
        assert make_scenarios(shuffled, held_out=50) == make_scenarios(corpus, held_out=50)

    def test_other_pages_move_no_question_to_the_other_side(self, corpus: Corpus) -> None:
        every_other = Corpus(title=corpus.title, pages=corpus.pages[::2])
        some, whole = (make_scenarios(c, held_out=1000) for c in (every_other, corpus))
        assert not set(some.training) & set(whole.held_out)
        assert not set(some.held_out) & set(whole.training)

    def test_too_few_functions(self, corpus: Corpus) -> None:
        small = Corpus(title="tiny", pages=corpus.functions[:9])
        with pytest.raises(ConfigError, match=r"questions can be made from .* 'tiny'"):
            make_scenarios(small, held_out=50)


class TestQuestions:
    def test_have_their_answer_in_the_index(self, corpus: Corpus, corpus_index: Path) -> None:
        held_out = make_scenarios(corpus, held_out=80).held_out
        scores = [
            reciprocal_rank(search(corpus_index, scenario.question), scenario.function)
            for scenario in held_out
        ]
        assert sum(scores) / len(scores) > 0.75, "copying the question must nearly always work"

    def test_never_name_the_answer(self, corpus: Corpus) -> None:
        scenarios = make_scenarios(corpus, held_out=1000)
        for scenario in scenarios.training + scenarios.held_out:
            assert scenario.function not in scenario.question

    def test_a_sentence_of_several_functions_makes_none(self, corpus: Corpus) -> None:
        twins = tuple(
            Page(f"twins.{name}", "Return the very same thing twice.", "function") for name in "ab"
        )
        both = Corpus(title="Python", pages=corpus.pages + twins)
        everything = make_scenarios(both, held_out=1000)
        functions = {s.function for s in everything.training + everything.held_out}
        assert not functions & {"twins.a", "twins.b"}

    def test_wording(self, corpus: Corpus) -> None:
        scenarios = make_scenarios(corpus, held_out=1000)
        assert (
            Scenario(
                "I need something in Python that will collapse and truncate the given text to fit "
                "in the given width. Which function is that?",
                "textwrap.shorten",
            )
            in scenarios.training + scenarios.held_out
        )


@pytest.mark.parametrize(
    ("documentation", "sentence"),
    [
        ("Return x.\n\nMore.", "Return x"),
        ("Return the sum\nof x and y. And so on.", "Return the sum of x and y"),
        ("gcd(x, y) -> int\n\nReturn the divisor.", "Return the divisor"),
        ("numpy.dot(a, b, out=None)\n\nDot product of two arrays.", "Dot product of two arrays"),
        ("Use e.g.this thing! Or not.", "Use e.g.this thing"),
        ("Clean up (e.g. Flush) all of it. Then go.", "Clean up (e.g. Flush) all of it"),
        ("Like f. but not g. Or so.", "Like f. but not g"),
        ("f(x)", ""),
        ("", ""),
    ],
)
def test_first_sentence(documentation: str, sentence: str) -> None:
    assert first_sentence(documentation) == sentence
