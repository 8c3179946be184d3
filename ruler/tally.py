"""Counting what judging costs, and stopping where the user said to stop."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from art_core.errors import BudgetSpentError, ConfigError, JudgeSetupError


@dataclass(slots=True, kw_only=True)
class Tally:
    """What was asked of judge models, and what it cost."""

    calls: int = 0
    """Answers received from a model, unusable ones included."""
    cached: int = 0
    """Answers read from the cache instead."""
    unusable_answers: int = 0
    """Answers that weren't what was asked for; all but the last of a question are sent back."""
    retries: int = 0
    """Calls repeated because the server was busy, failing or out of reach."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    unpriced_calls: int = 0
    """Calls whose price isn't known: ``cost_usd`` is without them."""
    left_out_chars: int = 0
    """Characters of trajectories that were too long to show."""

    def add(self, other: Tally) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    def as_metrics(self) -> dict[str, float]:
        return {f"ruler/{name}": float(value) for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that judging may use.

    Looked at before each call, so calls already under way (at most the ruler's
    ``concurrency``) can exceed it by their own use.
    """

    usd: float | None = None
    tokens: int | None = None
    """Prompt and completion together."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not value > 0:
                raise ConfigError(f"budget {name} is {value!r}", "Give a number above 0, or None.")

    def check(self, spent: Tally, judge: str) -> None:
        """Raise unless another call may be made.

        Raises:
            BudgetSpentError: the budget is used up.
            JudgeSetupError: there is a budget in money, and a call without a price.
        """
        if self.usd is not None:
            if spent.unpriced_calls:
                raise JudgeSetupError(
                    f"the budget is {self.usd} US$, but what {judge} costs isn't known",
                    "Give the judge a price (ruler.Price), or a budget in tokens.",
                )
            if spent.cost_usd >= self.usd:
                raise BudgetSpentError(
                    f"{spent.cost_usd:.4f} of {self.usd} US$ for judging are spent",
                    "Raise Budget(usd=…); answers so far are in the cache and cost nothing again.",
                )
        used = spent.prompt_tokens + spent.completion_tokens
        if self.tokens is not None and used >= self.tokens:
            raise BudgetSpentError(
                f"{used} of {self.tokens} tokens for judging are spent",
                "Raise Budget(tokens=…); answers so far are in the cache and cost nothing again.",
            )
