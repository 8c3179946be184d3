from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ruler.statistics import (
    bradley_terry,
    kendall_tau,
    krippendorff_alpha,
    mean_kendall_tau,
    pair_accuracy,
    slope,
)

N = None
PUBLISHED = [
    [N, N, N, N, N, 3, 4, 1, 2, 1, 1, 3, 3, N, 3],
    [1, N, 2, 1, 3, 3, 4, 3, N, N, N, N, N, N, N],
    [N, N, 2, 1, 3, 4, 4, N, 2, 1, 1, 3, 3, N, 4],
]
"""The worked example that goes round with the coefficient; alpha for interval data is 0.811."""


def test_alpha_of_the_published_example() -> None:
    assert krippendorff_alpha(PUBLISHED) == pytest.approx(0.811, abs=5e-4)


def test_alpha_at_its_ends() -> None:
    assert krippendorff_alpha([[0.1, 0.5, 0.9], [0.1, 0.5, 0.9]]) == pytest.approx(1)
    assert krippendorff_alpha([[0.5, 0.5], [0.5, 0.5]]) is None
    assert krippendorff_alpha([[0.1, 0.9]]) is None
    opposite = krippendorff_alpha([[0, 1, 0, 1], [1, 0, 1, 0]])
    assert opposite is not None
    assert opposite < 0


def test_tau_with_and_without_ties() -> None:
    assert kendall_tau([1, 2, 3], [10, 20, 30]) == 1
    assert kendall_tau([1, 2, 3], [3, 2, 1]) == -1
    assert kendall_tau([1, 2, 3], [1, 1, 1]) is None
    # One pair tied in x: 5 concordant of sqrt(5 * 6).
    assert kendall_tau([1, 1, 2, 3], [1, 2, 3, 4]) == pytest.approx(5 / 30**0.5)
    assert mean_kendall_tau([[1, 2], [1, 2], [2, 1]]) == pytest.approx(-1 / 3)


def test_pairs_count_ties_as_half() -> None:
    assert pair_accuracy([0, 1, 1], [0.2, 0.9, 0.2]) == [1, 0.5]
    assert pair_accuracy([1, 1], [0, 1]) == []


def test_slope_of_a_line() -> None:
    assert slope([0, 1, 2], [1, 3, 5]) == pytest.approx(2)
    assert slope([1, 1], [0, 1]) is None
    assert slope([], []) is None


wins = st.integers(2, 6).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.fixed_dictionaries(
            {pair: st.sampled_from([0.0, 0.5, 1.0]) for pair in combinations(range(n), 2)}
        ),
    )
)


@settings(deadline=None)
@given(wins)
def test_bradley_terry_solves_the_likelihood_equations(
    tournament: tuple[int, dict[tuple[int, int], float]],
) -> None:
    """At the maximum each player's expected wins equal the wins it has."""
    players, first_wins = tournament
    played = {**first_wins, **{(j, i): 1 - won for (i, j), won in first_wins.items()}}
    scores = bradley_terry(players, played)
    assert all(0 < score < 1 for score in scores)
    strengths = [score / (1 - score) for score in scores]
    for i in range(players):
        expected = sum(
            strengths[i] / (strengths[i] + strengths[j]) for j in range(players) if j != i
        )
        won = sum(played[i, j] for j in range(players) if j != i)
        assert expected + scores[i] == pytest.approx(won + 0.5, abs=1e-3)
