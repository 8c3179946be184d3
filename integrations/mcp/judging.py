"""How ``art mcp train`` asks its one judge."""

from __future__ import annotations

from collections.abc import Sequence

from art_core.rollouts.scenarios import scenario_digest
from art_core.trajectories import Trajectory, TrajectoryGroup
from integrations.mcp.making import TaskScenario
from ruler import DEFAULT_RUBRIC, JudgeModel, Ruler


class JudgeReward:
    """Rollouts are compared with each other to train on; held-out ones graded each alone,
    so that their scores can be compared over time, and at the end in pairs."""

    def __init__(self, judge: JudgeModel, held_out: Sequence[TaskScenario]) -> None:
        self._relative = Ruler(judge, _standard, mode="relative")
        self.absolute = self._relative.using(judge, _standard, mode="absolute")
        self.in_pairs = self._relative.using(judge, _standard, mode="pairwise")
        self._held_out = {scenario_digest(one) for one in held_out}

    async def __call__(self, group: TrajectoryGroup) -> TrajectoryGroup | None:
        scenario = group.trajectories[0].metadata["scenario"]
        held_out = scenario_digest(scenario) in self._held_out
        return await (self.absolute if held_out else self._relative)(group)


def _standard(trajectories: Sequence[Trajectory]) -> str:
    """The rubric, with what success is in this scenario where it says so."""
    scenario = trajectories[0].metadata["scenario"]
    success = scenario.get("success") if isinstance(scenario, dict) else None
    rubric = f"{DEFAULT_RUBRIC.rstrip()}\n- What isn't backed by a tool's result is no achievement."
    return rubric if not success else f"{rubric}\n- In this task success means: {success}"
