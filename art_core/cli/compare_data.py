"""What `art compare` says about each model, read from its run directory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, cast

from art_core.errors import RunError
from art_core.rollouts.prompted import MODEL_CALLS
from art_core.rollouts.scenarios import scenario_digest
from art_core.runs import VALIDATION_SPLIT, RunReader, open_run_readonly, scored_rewards
from art_core.runs.records import read_rollouts
from art_core.trajectories import Completion, Trajectory, TrajectoryGroup, TrajectoryStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """What the model calls of one rollout took together."""

    seconds: float
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """One model on the common scenarios. Means are over rollouts, None where unknown."""

    run: str
    step: int
    model: str | None
    """The base model of a trained one; what litellm or the API calls a prompted one."""
    trained: bool
    rollouts: int
    failed: int
    """Among them; they have no reward."""
    reward: float | None
    reward_error: float | None
    """Standard error of the reward over scenarios; None for less than two."""
    cost_usd: float | None
    seconds: float | None
    """In model calls, one after the other."""
    prompt_tokens: float | None
    completion_tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Models on the scenarios that all were evaluated on."""

    scenarios: int
    left_out: dict[str, int]
    """By run: scenarios that another model wasn't evaluated on."""
    rows: list[ModelRow]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluation:
    name: str
    run: RunReader
    step: int
    groups: dict[str, list[TrajectoryGroup]]
    """By scenario. One that is held out twice has two."""


def compare_runs(root: Path, names: Sequence[str]) -> Comparison:
    """Read and compare the evaluations of runs.

    Raises:
        RunError: there is no such run or evaluation, or no scenario is common to all.
    """
    evaluations = [_evaluation(root, name) for name in names]
    common: set[str] = set(evaluations[0].groups)
    for each in evaluations[1:]:
        common &= each.groups.keys()
    if not common:
        counts = ", ".join(f"{each.name}: {len(each.groups)}" for each in evaluations)
        raise RunError(
            f"no scenario was played by all of these models ({counts} scenarios)",
            "Evaluate them on the same held-out scenarios, with art.evaluate.",
        )
    return Comparison(
        scenarios=len(common),
        left_out={e.name: left for e in evaluations if (left := len(e.groups.keys() - common))},
        rows=[_row(each, sorted(common)) for each in evaluations],
    )


def _evaluation(root: Path, name: str) -> _Evaluation:
    asked, at, number = name.rpartition("@")
    if at and not number.isdecimal():
        raise RunError(f"{name!r} doesn't end with a step", "Write RUN or RUN@STEP.")
    run = open_run_readonly(asked if at else name, root)
    steps = run.trajectories.steps(VALIDATION_SPLIT)
    called = f"{run.identity.project}/{run.identity.model}"
    if not steps:
        raise RunError(
            f"{called} was never evaluated on held-out scenarios",
            "Pass validation= to art.train, or call art.evaluate.",
        )
    step = int(number) if at else steps[-1]
    by_scenario: dict[str, list[TrajectoryGroup]] = {}
    for group in run.trajectories.read(VALIDATION_SPLIT, step):
        if "scenario" in group.metadata:
            by_scenario.setdefault(scenario_digest(group.metadata["scenario"]), []).append(group)
    return _Evaluation(name=f"{called}@{step}", run=run, step=step, groups=by_scenario)


def _row(evaluation: _Evaluation, scenarios: list[str]) -> ModelRow:
    identity = evaluation.run.identity
    of_scenarios = [evaluation.groups[scenario] for scenario in scenarios]
    groups = [group for same in of_scenarios for group in same]
    played = [trajectory for group in groups for trajectory in group.trajectories]
    finished = [t for t in played if t.status is not TrajectoryStatus.FAILED]
    took = _took(evaluation.run, finished)
    by_scenario = [[r for group in same for r in scored_rewards(group)] for same in of_scenarios]
    scores = [fmean(rewards) for rewards in by_scenario if rewards]
    rewards = [reward for same in by_scenario for reward in same]
    lost = sum(len(group.exceptions) for group in groups)
    costs = [each.cost_usd for each in took if each.cost_usd is not None]
    return ModelRow(
        run=evaluation.name,
        step=evaluation.step,
        model=identity.base_model or _prompted_model(finished),
        trained=identity.base_model is not None,
        rollouts=len(played) + lost,
        failed=len(played) - len(finished) + lost,
        reward=fmean(rewards) if rewards else None,
        reward_error=stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else None,
        cost_usd=fmean(costs) if costs and len(costs) == len(took) else None,
        seconds=fmean(each.seconds for each in took) if took else None,
        prompt_tokens=fmean(each.prompt_tokens for each in took) if took else None,
        completion_tokens=fmean(each.completion_tokens for each in took) if took else None,
    )


def _took(run: RunReader, finished: list[Trajectory]) -> list[Took]:
    """Of each rollout; empty if it isn't known of all."""
    recorded = [_of_metadata(trajectory) for trajectory in finished]
    known = [each for each in recorded if each is not None]
    if not known and run.records_path.exists():
        ids = [t.rollout_id for t in finished if t.rollout_id is not None]
        by_rollout = read_rollouts(run.records_path, ids)
        known = [_of_records(records) for records in by_rollout.values() if records]
    return known if len(known) == len(finished) else []


def _of_metadata(trajectory: Trajectory) -> Took | None:
    calls = trajectory.metadata.get(MODEL_CALLS)
    if not isinstance(calls, dict):
        return None
    totals = cast("dict[str, Any]", calls)
    return Took(
        seconds=totals["seconds"],
        prompt_tokens=totals["prompt_tokens"],
        completion_tokens=totals["completion_tokens"],
        cost_usd=totals["cost_usd"],
    )


def _of_records(records: list[Completion]) -> Took:
    """Several choices of one request share its prompt and its time."""
    requests: dict[str, list[Completion]] = {}
    for record in records:
        if record.may_be_trained:
            requests.setdefault(record.request_id, []).append(record)
    return Took(
        seconds=sum(
            max(r.finished_at for r in choices) - min(r.started_at for r in choices)
            for choices in requests.values()
        ),
        prompt_tokens=sum(len(choices[0].prompt_token_ids) for choices in requests.values()),
        completion_tokens=sum(
            len(r.completion_token_ids) for choices in requests.values() for r in choices
        ),
        cost_usd=None,
    )


def _prompted_model(finished: list[Trajectory]) -> str | None:
    for trajectory in finished:
        calls = trajectory.metadata.get(MODEL_CALLS)
        if isinstance(calls, dict):
            return str(cast("dict[str, Any]", calls)["model"])
    return None
