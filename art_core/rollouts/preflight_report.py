"""What `check` found, and what to change."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from math import comb
from statistics import fmean, pstdev
from typing import Any

from pydantic import JsonValue

from art_core.trajectories import CompletionStatus

_MANY_TRUNCATED = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """What training on one group takes, measured."""

    seconds: float
    peak_bytes: int
    """Memory at the peak, above what is taken before the step."""
    tokens: int
    """Distinct tokens computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCheck:
    """One recorded model call."""

    status: str
    """A `CompletionStatus`."""
    prompt_tokens: int
    sampled_tokens: int
    tags: dict[str, str] = field(default_factory=dict[str, str])
    parse_errors: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutCheck:
    """One rollout of the group."""

    rollout_ids: list[str]
    """More than one if the function opened several; none if it opened no rollout."""
    calls: list[CallCheck]
    redirected: int
    """Calls meant for another host that the capture sent to the policy. The other
    ``calls`` named their rollout by URL, key or header."""
    passed: dict[str, int]
    """Model calls that went to other hosts and weren't recorded, by host."""
    histories: int
    tokens: int
    """In all histories together."""
    reward: float | None
    error: str | None
    """Why it failed, if it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """One group, played by the model as it is."""

    scenario: JsonValue
    rollouts: list[RolloutCheck]
    solved: float
    """The reward from which on a rollout counts as a success."""
    scoring_problem: str | None
    seconds: float
    """To play the group."""
    groups_per_step: int
    step_cost: StepCost | None
    """None: too few rollouts could be used, or the backend can't measure it."""

    @property
    def rewards(self) -> list[float]:
        return [r.reward for r in self.rollouts if r.reward is not None and r.error is None]

    @property
    def spread(self) -> float:
        """Standard deviation of the rewards; 0 means that nothing can be learned from them."""
        return pstdev(self.rewards) if self.rewards else 0.0

    @property
    def pass_at_k(self) -> dict[int, float]:
        """For k = 1, 2, 4, … up to the group's size: the chance that one of k rollouts
        succeeds, without bias from the n played (arXiv 2107.03374)."""
        n = len(self.rollouts)
        successes = sum(reward >= self.solved for reward in self.rewards)
        ks = [2**power for power in range(n.bit_length()) if 2**power <= n]
        return {k: 1 - comb(n - successes, k) / comb(n, k) for k in ks}

    @property
    def step_seconds(self) -> float | None:
        """An estimate for a training step: rollouts and gradient of all its groups, one
        after the other. Engines serve several groups at once faster than that."""
        if self.step_cost is None:
            return None
        return (self.seconds + self.step_cost.seconds) * self.groups_per_step

    @property
    def advice(self) -> list[str]:
        """What to change before training; empty if nothing."""
        return [*self._about_failures(), *self._about_calls(), *self._about_rewards()]

    @property
    def ready(self) -> bool:
        """Whether training on such groups would learn something."""
        return not self.advice

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "rewards": self.rewards,
            "spread": self.spread,
            "pass_at_k": self.pass_at_k,
            "step_seconds": self.step_seconds,
            "advice": self.advice,
        }

    def _about_failures(self) -> list[str]:
        errors = Counter(rollout.error for rollout in self.rollouts if rollout.error)
        return [
            f"{count} of {len(self.rollouts)} rollouts failed: {error}"
            for error, count in errors.items()
        ]

    def _about_calls(self) -> list[str]:
        advice: list[str] = []
        passed: Counter[str] = Counter()
        for rollout in self.rollouts:
            passed.update(rollout.passed)
        for host, count in passed.items():
            advice.append(
                f"{count} model calls went to {host} and weren't recorded: add it to "
                f"CaptureConfig(hosts=…) if it is the agent's model, or wrap the calls in "
                "art.untraced() if it is a judge or a helper."
            )
        calls = [call for rollout in self.rollouts for call in rollout.calls]
        if not calls:
            return advice  # each rollout's failure says so already
        lost = sum(
            call.status in (CompletionStatus.ABANDONED, CompletionStatus.FAILED) for call in calls
        )
        if lost:
            advice.append(
                f"{lost} of {len(calls)} calls were abandoned or failed and are never trained on: "
                "raise the agent's own time limits, or look into its retries."
            )
        truncated = sum(call.status == CompletionStatus.TRUNCATED for call in calls)
        if truncated > _MANY_TRUNCATED * len(calls):
            advice.append(
                f"{truncated} of {len(calls)} calls were cut off by max_tokens. If that isn't "
                "meant, raise it: a reward for an unfinished answer teaches little."
            )
        malformed = sum(bool(call.parse_errors) for call in calls)
        if malformed:
            advice.append(
                f"{malformed} of {len(calls)} calls had malformed tool calls. Training can mend "
                "that, if a call that is well-formed is rewarded."
            )
        return advice

    def _about_rewards(self) -> list[str]:
        if self.scoring_problem is not None:
            return [f"{self.scoring_problem}."]
        finished = [rollout for rollout in self.rollouts if rollout.error is None]
        unscored = sum(rollout.reward is None for rollout in finished)
        if unscored:
            return [
                f"{unscored} of {len(finished)} rollouts have no reward: set trajectory.reward, "
                "or pass reward= (a scorer)."
            ]
        if self.spread > 0 or not self.rewards:
            return []
        mean = fmean(self.rewards)
        if mean >= self.solved:
            return [
                f"every rollout got {mean:g}: the model can do this one already. Use harder "
                "scenarios."
            ]
        return [
            f"every rollout got {mean:g}, so there is nothing to compare and nothing to learn. "
            "Try easier scenarios first, partial credit in the reward (for a well-formed call, "
            "for half of the way), more rollouts per group, an example in the prompt, or a larger "
            "base model."
        ]
