"""How AutoRL asks its one judge: relative to train, absolute to follow, pairwise to conclude."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import JsonValue

from art_core.errors import ScenarioError
from art_core.trajectories import Trajectory, TrajectoryGroup
from ruler.auto.scenario import Scenario
from ruler.judges.model import JudgeModel
from ruler.scorer import Ruler


class Judges:
    """One judge, asked in the way that fits the question; one budget, cache and count."""

    def __init__(
        self, model: JudgeModel, ruler: Ruler, rubric: str, held_out: Sequence[Scenario]
    ) -> None:
        standard = _standard(rubric)
        self._compared = ruler.using(model, standard, mode="relative")
        self.alone = ruler.using(model, standard, mode="absolute")
        self.in_pairs = ruler.using(model, standard, mode="pairwise")
        self._held_out = {one.id for one in held_out}

    async def score(self, group: TrajectoryGroup) -> TrajectoryGroup | None:
        """Relative scores to train on; absolute ones to follow held-out scenarios by."""
        held_out = scenario_of(group.trajectories[0]).get("id") in self._held_out
        return await (self.alone if held_out else self._compared)(group)


def _standard(rubric: str) -> Callable[[Sequence[Trajectory]], str]:
    def standard(trajectories: Sequence[Trajectory]) -> str:
        success = scenario_of(trajectories[0]).get("success")
        return f"{rubric.rstrip()}\n- In this task success means: {success}"

    return standard


def scenario_of(trajectory: Trajectory) -> dict[str, JsonValue]:
    scenario = trajectory.metadata["scenario"]
    if not isinstance(scenario, dict):
        raise ScenarioError(
            f"metadata['scenario'] of a trajectory is {scenario!r:.200}",
            "Leave it to model.rollout(scenario).",
        )
    return scenario
