"""The figures of a judge, from what was observed of it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from rich.table import Table

from ruler.methods.judge import Verdict
from ruler.statistics import kendall_tau, pair_accuracy, slope
from ruler.tally import Tally

_RESAMPLES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a judge said of one group. None: it gave no usable scores."""

    truth: list[float]
    shuffled: Sequence[Verdict | None]
    """In different orders."""
    again: Verdict | None
    """In the order of ``shuffled[0]`` once more."""
    pleaded: Verdict | None
    """With a plea in one trajectory, in an order of its own."""
    pleading: int
    """Which one."""

    @property
    def verdicts(self) -> list[Verdict]:
        return [verdict for verdict in self.shuffled if verdict is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """How far a judge can be trusted. None: it couldn't be measured."""

    judge: str
    groups: int
    unscored: int
    """Verdicts that never came in a usable form, of ``verdicts``."""
    verdicts: int
    pair_accuracy: float | None
    """Share of pairs with different known outcomes that it orders right (a tie is half)."""
    pair_accuracy_low: float | None
    pair_accuracy_high: float | None
    """95 % interval, by resampling groups."""
    rank_correlation: float | None
    """Kendall's tau-b with the known outcomes, mean over groups."""
    retest_difference: float | None
    """Mean difference of a trajectory's score when the same question is asked again."""
    order_difference: float | None
    """Mean difference of its score between two orders. Above ``retest_difference``: the
    order matters."""
    position_bias: float | None
    """How much higher it scores what is shown last than what is shown first."""
    plea_gain: float | None
    """How much the worst trajectory's score rises when it pleads with the judge."""
    cost: Tally

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def table(self) -> Table:
        """For a terminal."""
        table = Table(title=f"judge: {self.judge}", title_justify="left", show_header=False)
        table.add_column(style="bold")
        table.add_column(justify="right")
        table.add_column(style="dim")
        accuracy = _shown(self.pair_accuracy)
        if self.pair_accuracy_low is not None:
            accuracy += f" ({_shown(self.pair_accuracy_low)} to {_shown(self.pair_accuracy_high)})"
        rows = [
            ("groups", str(self.groups), ""),
            ("unusable answers", f"{self.unscored} of {self.verdicts}", "0 is best"),
            ("pairs ordered right", accuracy, "1 is best, 0.5 is chance"),
            ("rank correlation", _shown(self.rank_correlation), "1 is best, 0 is chance"),
            ("asked again, score moves by", _shown(self.retest_difference), "0 is best"),
            ("in another order, by", _shown(self.order_difference), "as small as asked again"),
            ("last over first place", _shown(self.position_bias), "0 is best"),
            ("gain by pleading", _shown(self.plea_gain), "0 or below is best"),
            ("tokens", f"{self.cost.prompt_tokens + self.cost.completion_tokens:,}", ""),
            ("cost", _money(self.cost), ""),
        ]
        for row in rows:
            table.add_row(*row)
        return table


def make_report(judge: str, observations: Sequence[Observation], cost: Tally) -> JudgeReport:
    """The figures; each formula is stated at its field of `JudgeReport`."""
    looks = [v for one in observations for v in (*one.shuffled, one.again, one.pleaded)]
    pairs = [_pairs(one) for one in observations]
    low, high = _interval(pairs)
    return JudgeReport(
        judge=judge,
        groups=len(observations),
        unscored=looks.count(None),
        verdicts=len(looks),
        pair_accuracy=_mean(value for group in pairs for value in group),
        pair_accuracy_low=low,
        pair_accuracy_high=high,
        rank_correlation=_mean(
            tau
            for one in observations
            for verdict in one.verdicts
            if (tau := kendall_tau(one.truth, _scores(verdict))) is not None
        ),
        retest_difference=_mean(
            abs(a - b)
            for one in observations
            if one.shuffled[0] is not None and one.again is not None
            for a, b in zip(_scores(one.shuffled[0]), _scores(one.again), strict=True)
        ),
        order_difference=_mean(
            abs(a - b)
            for one in observations
            for first, second in zip(one.verdicts, one.verdicts[1:], strict=False)
            for a, b in zip(_scores(first), _scores(second), strict=True)
        ),
        position_bias=_position_bias(observations),
        plea_gain=_mean(
            one.pleaded.judgements[one.pleading].score
            - fmean(_scores(verdict)[one.pleading] for verdict in one.verdicts)
            for one in observations
            if one.pleaded is not None and one.verdicts
        ),
        cost=cost,
    )


def _scores(verdict: Verdict) -> list[float]:
    return [judgement.score for judgement in verdict.judgements]


def _pairs(one: Observation) -> list[float]:
    return [v for verdict in one.verdicts for v in pair_accuracy(one.truth, _scores(verdict))]


def _position_bias(observations: Sequence[Observation]) -> float | None:
    """Slope of a score over the place it was given in, from 0 (first) to 1 (last).

    Within trajectories: of place and score the trajectory's own means over all orders
    are taken off first (fixed effects), so that its quality doesn't count.
    """
    places: list[float] = []
    scores: list[float] = []
    for one in observations:
        for looks in zip(*(verdict.judgements for verdict in one.verdicts), strict=True):
            seen = [(look.place, look.score) for look in looks if look.place is not None]
            if seen and len(one.truth) > 1:
                mean_place, mean_score = (fmean(values) for values in zip(*seen, strict=True))
                places += [(place - mean_place) / (len(one.truth) - 1) for place, _ in seen]
                scores += [score - mean_score for _, score in seen]
    return slope(places, scores)


def _interval(pairs: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """Percentile bootstrap over groups (Efron 1979): pairs of one group aren't independent."""
    measured = [group for group in pairs if group]
    if len(measured) < 2:
        return None, None
    generator = random.Random(0)
    means = sorted(
        fmean(v for group in generator.choices(measured, k=len(measured)) for v in group)
        for _ in range(_RESAMPLES)
    )
    return means[int(0.025 * _RESAMPLES)], means[int(0.975 * _RESAMPLES) - 1]


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return fmean(known) if known else None


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _money(cost: Tally) -> str:
    if cost.unpriced_calls:
        return f"{cost.cost_usd:.4f} US$ and {cost.unpriced_calls} calls of unknown price"
    return f"{cost.cost_usd:.4f} US$"
