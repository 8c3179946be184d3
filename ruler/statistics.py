"""Agreement and rank statistics, each a formula in one short function."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, product
from statistics import fmean


def krippendorff_alpha(ratings: Sequence[Sequence[float | None]]) -> float | None:
    """Krippendorff's alpha for interval data.

    ``ratings`` is raters × items, None where a rater has no rating. 1 is perfect
    agreement, 0 that of chance. None where it is undefined: fewer than two ratings
    to compare, or no variation at all.

    Krippendorff, *Content Analysis* (2004), ch. 11: ``1 - D_observed / D_expected``
    with squared differences; items with one rating are left out.
    """
    items = [[r for r in item if r is not None] for item in zip(*ratings, strict=True)]
    pairable = [item for item in items if len(item) > 1]
    values = [rating for item in pairable for rating in item]
    if len(values) < 2:
        return None
    observed = sum(
        sum((a - b) ** 2 for a, b in product(item, item)) / (len(item) - 1) for item in pairable
    )
    expected = sum((a - b) ** 2 for a, b in product(values, values)) / (len(values) - 1)
    return None if expected == 0 else 1 - observed / expected


def kendall_tau(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Kendall's tau-b: rank correlation that allows for ties (Kendall 1945).

    None where one of the two is constant.
    """
    concordance = 0
    untied_x = untied_y = 0
    for (x1, y1), (x2, y2) in combinations(list(zip(xs, ys, strict=True)), 2):
        in_x, in_y = _sign(x1 - x2), _sign(y1 - y2)
        concordance += in_x * in_y
        untied_x += in_x != 0
        untied_y += in_y != 0
    return concordance / math.sqrt(untied_x * untied_y) if untied_x and untied_y else None


def mean_kendall_tau(raters: Sequence[Sequence[float]]) -> float | None:
    """Mean tau-b over the pairs of raters; None where it is undefined for all of them."""
    taus = [tau for a, b in combinations(raters, 2) if (tau := kendall_tau(a, b)) is not None]
    return fmean(taus) if taus else None


def pair_accuracy(truth: Sequence[float], scores: Sequence[float]) -> list[float]:
    """For each pair that ``truth`` orders: 1 if ``scores`` order it so, 0.5 for a tie, else 0."""
    return [
        (1 + _sign(t1 - t2) * _sign(s1 - s2)) / 2
        for (t1, s1), (t2, s2) in combinations(list(zip(truth, scores, strict=True)), 2)
        if t1 != t2
    ]


def slope(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Of the least-squares line of ``ys`` over ``xs``; None where ``xs`` is constant."""
    if not xs:
        return None
    x_mean, y_mean = fmean(xs), fmean(ys)
    variance = sum((x - x_mean) ** 2 for x in xs)
    if variance == 0:
        return None
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / variance


def bradley_terry(
    players: int, wins: Mapping[tuple[int, int], float], *, rounds: int = 200
) -> list[float]:
    """Each player's probability of beating an average one, in (0, 1).

    ``wins[i, j]``: how often i beat j; a tie is half a win for each. Maximum
    likelihood of the Bradley-Terry model by the MM algorithm (Hunter, 2004,
    doi 10.1214/aos/1079120141), with one tie against a player of strength 1
    added to each, which keeps the strength of the unbeaten finite.
    """
    strengths = [1.0] * players
    won = [0.5] * players
    met: list[dict[int, float]] = [{} for _ in range(players)]
    for (i, j), count in wins.items():
        won[i] += count
        met[i][j] = met[i].get(j, 0.0) + count
        met[j][i] = met[j].get(i, 0.0) + count
    for _ in range(rounds):
        strengths = [
            won[i]
            / (
                1 / (strengths[i] + 1)
                + sum(games / (strengths[i] + strengths[j]) for j, games in met[i].items())
            )
            for i in range(players)
        ]
    return [strength / (strength + 1) for strength in strengths]


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
