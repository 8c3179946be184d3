"""`autorl`: from a description to a trained model and a report."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from art_core.config import TrainConfig
from art_core.errors import ScenarioError
from art_core.rollouts import TrainableModel, TrainReport, train
from art_core.rollouts.playable import Playable, Player, player
from art_core.runs import RunDirectory, write_whole
from art_core.trajectories import Tool, Trajectory
from ruler.auto.judging import Judges
from ruler.auto.making import make_scenarios
from ruler.auto.scenario import Scenario
from ruler.auto.sifting import Sifted, sift_scenarios
from ruler.auto.splitting import split_scenarios
from ruler.auto.winning import WinRate, before_and_after, win_rate
from ruler.judges.model import JudgeModel
from ruler.resolving import make_model
from ruler.rubric import DEFAULT_RUBRIC
from ruler.scorer import Ruler
from ruler.tally import Budget, Tally

_log = logging.getLogger("ruler")
FOLDER = "auto"
"""In the run directory: the scenarios, and what became of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoReport:
    """What `autorl` did."""

    trained_on: list[Scenario]
    held_out: list[Scenario]
    dropped: dict[str, str]
    """Why scenarios were left out, by id."""
    win_rate: WinRate
    """Of the trained model against the untrained one, on the held-out scenarios."""
    training: TrainReport
    judging: Tally
    """What judging cost in this start; writing the scenarios not included."""


async def autorl(
    model: TrainableModel[Any],
    agent: Player | Playable,
    *,
    judge: str | JudgeModel,
    task: str | None = None,
    tools: Sequence[Tool] | None = None,
    examples: Sequence[str] | None = None,
    scenarios: int = 40,
    validation: float = 0.2,
    tries: int = 0,
    rubric: str = DEFAULT_RUBRIC,
    config: TrainConfig | None = None,
    writer: str | JudgeModel | None = None,
    budget: Budget | None = None,
    cache: Path | bool = True,
) -> AutoReport:
    """Train a registered model from nothing but a description, its tools or examples.

    Makes scenarios, splits them, leaves out those that nothing can be learned from,
    trains with a judge's relative scores as rewards, and lets the judge compare the
    trained model with the untrained one on scenarios that neither was trained on.
    Interrupted in any of these, it goes on where it was when it's started again.

    Args:
        agent: plays a `Scenario` inside ``model.rollout(scenario)``; it is given
            ``scenario.task`` to do. As for `art_core.train`.
        judge: a LiteLLM model string, or a model.
        scenarios: how many to make.
        validation: the share of them that is held out.
        tries: rollouts of the untrained model by which a training scenario is tried for
            solvability; 0 doesn't try them.
        rubric: what good means; what success is in a scenario is added to it.
        config: of the training run.
        writer: the model that writes the scenarios; None: the judge.
        budget: of judging.

    Raises:
        ScenarioError: no scenario is left to train on.
        ConfigError, JudgeError: see `make_scenarios` and `Ruler`.
    """
    config = config or TrainConfig()
    run = model.backend().run_directory(model)
    made = await make_scenarios(
        n=scenarios,
        judge=writer or judge,
        task=task,
        tools=tools,
        examples=examples,
        path=run.path / FOLDER / "scenarios.jsonl",
        seed=config.seed,
        cache=cache,
    )
    to_train, held_out = split_scenarios(made, validation=validation, seed=config.seed)
    asked = make_model(judge)
    ruler = Ruler(asked, seed=config.seed, budget=budget, cache=cache)
    judges = Judges(asked, ruler, rubric, held_out)
    play = _knowing_its_scenario(player(agent))
    sifted = await _sift(run, to_train, play, judges, tries, config)
    training = await train(
        model, play, sifted.kept, config, validation=held_out, reward=judges.score
    )
    return AutoReport(
        trained_on=sifted.kept,
        held_out=held_out,
        dropped=sifted.dropped,
        win_rate=await win_rate(before_and_after(run, training.steps), judges.in_pairs),
        training=training,
        judging=judges.in_pairs.spent,
    )


def _knowing_its_scenario(play: Player) -> Player:
    """Trajectories that an agent builds by hand are told what they were about, too."""

    async def knowing(scenario: Scenario) -> Trajectory:
        trajectory = await play(scenario)
        trajectory.metadata["scenario"] = scenario.model_dump(mode="json")
        return trajectory

    return knowing


async def _sift(
    run: RunDirectory,
    scenarios: list[Scenario],
    play: Player,
    judges: Judges,
    tries: int,
    config: TrainConfig,
) -> Sifted:
    """Once for a run: what was found is written down."""
    if tries == 0:
        return Sifted(kept=scenarios, rates={})
    path = run.path / FOLDER / "sifted.json"
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    else:
        sifted = await sift_scenarios(
            scenarios,
            play,
            reward=judges.alone,
            rollouts=tries,
            concurrency=config.concurrency,
            seed=config.seed,
        )
        found = {"rates": sifted.rates, "dropped": sifted.dropped}
        write_whole(path, [json.dumps(found, indent=1).encode()])
    dropped: dict[str, str] = found["dropped"]
    kept = [one for one in scenarios if one.id not in dropped]
    counts = Counter(dropped.values())
    for reason, count in counts.items():
        _log.warning("%d of %d scenarios left out: %s", count, len(scenarios), reason)
    if not kept:
        raise ScenarioError(
            f"none of {len(scenarios)} scenarios can be learned from: {dict(counts)}",
            "Describe easier tasks, warm the model up by fine-tuning, or set tries=0.",
        )
    return Sifted(kept=kept, rates=found["rates"], dropped=dropped)
