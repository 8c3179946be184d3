"""What a loop gathers: the groups of a training step, and of an evaluation."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from art_core.config import TrainConfig
from art_core.errors import TooManyFailuresError
from art_core.rollouts.attempts import Limits, within
from art_core.rollouts.display import LoopDisplay
from art_core.rollouts.failures import Failures
from art_core.rollouts.gather import AfterEach, Gatherer
from art_core.rollouts.plan import extra_scenarios, planned_scenarios
from art_core.rollouts.play import current_play, derive_seed
from art_core.rollouts.playable import Player
from art_core.rollouts.playing import GroupPlan
from art_core.rollouts.scoring import Scorer, finished_trajectories, score_group
from art_core.rollouts.waiting import Waiting
from art_core.runs import VALIDATION_SPLIT, RunDirectory, has_spread
from art_core.trajectories import Trajectory, TrajectoryGroup

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopGatherer:
    """Plays scenarios for a training loop."""

    play: Player
    scenarios: Sequence[Any]
    validation: Sequence[Any]
    config: TrainConfig
    scorer: Scorer | None
    run: RunDirectory
    display: LoopDisplay
    waiting: Waiting

    async def step(self, step: int) -> tuple[list[TrajectoryGroup], int]:
        """The groups to train a step on, and how many rollouts failed.

        Finished groups are kept in the run's journal, and taken from it after a restart.
        Where rewards don't differ inside a group, up to ``extra_groups`` more are gathered
        until ``groups_per_step`` have a spread.

        Raises:
            TooManyFailuresError: no group has two scored rollouts, or too many failed.
            RewardError: a trajectory has no reward.
            RolloutTimeoutError: the scorer took longer than a rollout may.
        """
        plans = self._step_plans(step)
        finished = await self._from_journal(step, plans)

        async def keep(group: TrajectoryGroup) -> TrajectoryGroup | None:
            scored = await self._score(group)
            if scored is None or len(finished_trajectories(scored)) < 2:
                return None
            finished[scored.id] = scored
            await asyncio.to_thread(self.run.journal.add, step, scored)
            return scored

        failed, tried, wanted = 0, 0, self.config.groups_per_step
        while wanted and tried < len(plans):
            batch = plans[tried : tried + wanted]
            tried += len(batch)
            missing = [plan for plan in batch if plan.id not in finished]
            failed += await self._gather(f"step {step}", missing, keep)
            so_far = [finished[plan.id] for plan in plans[:tried] if plan.id in finished]
            wanted = self.config.groups_per_step - sum(map(has_spread, so_far))
        groups = [finished[plan.id] for plan in plans[:tried] if plan.id in finished]
        _check_worth_training(step, groups)
        return groups, failed

    async def evaluation(self, step: int) -> list[TrajectoryGroup]:
        """The held-out scenarios, played in mode ``eval``.

        Raises:
            TooManyFailuresError: too many rollouts failed.
            RewardError: a trajectory has no reward.
        """
        plans = [self._evaluation_plan(step, index) for index in range(len(self.validation))]
        groups: dict[str, TrajectoryGroup] = {}

        async def keep(group: TrajectoryGroup) -> TrajectoryGroup:
            groups[group.id] = await self._score(group) or group
            return group

        await self._gather(f"held-out at step {step}", plans, keep)
        return [groups[plan.id] for plan in plans]

    async def _score(self, group: TrajectoryGroup) -> TrajectoryGroup | None:
        what = f"scoring group {group.id}"
        work = score_group(group, self.scorer)
        return await within(self.waiting.of(what, work), self.config.rollout_timeout, what)

    async def _watched_play(self, scenario: Any) -> Trajectory:
        play = current_play()
        what = "" if play is None else " ".join(f"{name} {tag}" for name, tag in play.tags.items())
        with self.waiting.doing(what):
            result: Any = self.play(scenario)  # checked by who awaits it
            return await result if inspect.isawaitable(result) else result

    async def _gather(
        self, description: str, plans: Sequence[GroupPlan], after_each: AfterEach
    ) -> int:
        if not plans:
            return 0
        config = self.config
        limits = Limits(
            concurrency=config.concurrency, timeout=config.rollout_timeout, retries=config.retries
        )
        total = sum(plan.rollouts for plan in plans)
        failures = Failures(total, config.max_exceptions)
        with self.display.gathering(description, total) as watcher:
            gatherer = Gatherer(limits, failures, watcher)
            await gatherer.groups([plan.pending(self._watched_play) for plan in plans], after_each)
        return failures.count

    async def _from_journal(
        self, step: int, plans: Sequence[GroupPlan]
    ) -> dict[str, TrajectoryGroup]:
        journal = await asyncio.to_thread(self.run.journal.read, step)
        return {
            plan.id: journal[plan.id]
            for plan in plans
            if plan.id in journal and plan.is_plan_of(journal[plan.id])
        }

    def _step_plans(self, step: int) -> list[GroupPlan]:
        config, count = self.config, len(self.scenarios)
        planned = planned_scenarios(count, config.groups_per_step, config.seed, step)
        extra = extra_scenarios(count, planned, config.extra_groups, config.seed, step)
        return [
            GroupPlan(
                id=f"{self.run.identity.run_id}-{step}-{slot}",
                scenario=self.scenarios[index],
                scenario_index=index,
                mode="train",
                rollouts=config.rollouts_per_group,
                seed=derive_seed(config.seed, "train", step, slot, index),
                tags={"step": str(step), "scenario": str(index)},
            )
            for slot, index in enumerate([*planned, *extra])
        ]

    def _evaluation_plan(self, step: int, index: int) -> GroupPlan:
        return GroupPlan(
            id=f"{self.run.identity.run_id}-{VALIDATION_SPLIT}-{step}-{index}",
            scenario=self.validation[index],
            scenario_index=index,
            mode="eval",
            rollouts=self.config.eval_rollouts,
            # The same at each evaluation: the policy is to make the difference, not luck.
            seed=derive_seed(self.config.seed, VALIDATION_SPLIT, index),
            tags={"step": str(step), "scenario": str(index)},
        )


def _check_worth_training(step: int, groups: Sequence[TrajectoryGroup]) -> None:
    if not groups:
        raise TooManyFailuresError(
            f"step {step} has no group with two scored rollouts", "The reasons are above."
        )
    if not any(map(has_spread, groups)):
        logger.warning(
            "step %d: the rewards differ in none of its groups, so nothing can be learned from "
            "it. If this goes on, the scenarios are too hard or too easy for the model, or the "
            "reward is too coarse.",
            step,
        )
