"""Making scenarios from a description, tools or examples."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from art_core.errors import ConfigError, JudgeAnswerError, JudgeError
from art_core.trajectories import Tool
from ruler.asking import Desk, Patience
from ruler.auto.likeness import NEARLY_THE_SAME, closest
from ruler.auto.scenario import Origin, Scenario, task_id
from ruler.auto.slots import Slot, plan
from ruler.auto.source import Source
from ruler.auto.store import appending
from ruler.auto.writing import Draft, writing_question
from ruler.cache import answer_cache
from ruler.judges.model import JudgeModel
from ruler.methods.judge import stops_the_run
from ruler.resolving import make_model
from ruler.tally import Budget, Tally
from ruler.together import all_of

_log = logging.getLogger("ruler")
Keep = Callable[[Sequence[Scenario]], None]

_BATCH = 6
"""Scenarios asked for in one question."""
_SHOWN = 30
"""Scenarios there are already that a question lists, to be kept away from."""


async def make_scenarios(
    *,
    n: int,
    judge: str | JudgeModel,
    task: str | None = None,
    tools: Sequence[Tool] | None = None,
    examples: Sequence[str] | None = None,
    path: Path | str | None = None,
    seed: int = 0,
    rounds: int = 4,
    concurrency: int = 8,
    patience: Patience | None = None,
    budget: Budget | None = None,
    cache: Path | bool = True,
) -> list[Scenario]:
    """Have a model write ``n`` varied scenarios, equally many of each difficulty from 1 to 5.

    At least one of ``task``, ``tools`` and ``examples`` says what the agent is for.
    Exact and near duplicates, of each other and of the examples, are written anew, in
    at most ``rounds`` rounds; if there are fewer than ``n`` after that, a warning is
    logged and those there are come back.

    Args:
        judge: the model that writes them.
        task: what the agent does, in a sentence or a page.
        tools: what it can call, as OpenAI's API spells tools. Each is needed by some
            of the scenarios.
        examples: tasks that real users asked.
        path: a JSONL file. A scenario is on disk as soon as it's accepted, and what is
            there already is kept: an interrupted call goes on where it was.
        seed: of the plan: who asks, how hard, with which tools.

    Raises:
        ConfigError: there is nothing to make scenarios from, or ``path`` holds ones
            that were made from something else.
        ScenarioError: a line of the file isn't a scenario.
        JudgeError: not a single scenario could be had.
    """
    if n < 1 or rounds < 1:
        raise ConfigError(f"n is {n} and rounds is {rounds}", "Both must be at least 1.")
    source = Source(task=task, tools=tools or (), examples=examples or ())
    maker = _Maker(
        source=source,
        model=make_model(judge),
        desk=Desk(
            cache=answer_cache(cache), patience=patience, budget=budget, concurrency=concurrency
        ),
        slots=plan(n, source.tool_names, seed),
        seed=seed,
    )
    if path is None:
        return await maker.make([], lambda _: None, rounds)
    with appending(Path(path)) as file:
        return await maker.make(list(file.scenarios), file.add, rounds)


class _Maker:
    def __init__(
        self, *, source: Source, model: JudgeModel, desk: Desk, slots: Sequence[Slot], seed: int
    ) -> None:
        self._source = source
        self._model = model
        self._desk = desk
        self._slots = slots
        self._seed = seed
        self._made: list[Scenario] = []
        self._failure: JudgeError | None = None

    async def make(self, made: list[Scenario], keep: Keep, rounds: int) -> list[Scenario]:
        """Fill the slots that ``made`` leaves open; ``keep`` is given each scenario at once."""
        self._made = made
        self._check_origin()
        for number in range(rounds):
            filled = {one.origin.slot for one in self._made}
            wanted = [slot for slot in self._slots if slot.number not in filled]
            avoid = self._to_avoid(number)
            await all_of(
                self._fill(wanted[start : start + _BATCH], avoid, number, keep)
                for start in range(0, len(wanted), _BATCH)
            )
        return self._result()

    async def _fill(
        self, slots: Sequence[Slot], avoid: Sequence[str], number: int, keep: Keep
    ) -> None:
        question = writing_question(self._source, slots, avoid, number)
        try:
            drafts = await self._desk.ask(self._model, question, Tally())
        except JudgeError as error:
            if stops_the_run(error):
                raise
            self._failure = error
            _log.warning("%d scenarios weren't written: %s", len(slots), error)
            return
        for slot in slots:
            draft = drafts[slot.number]
            if self._is_new(draft):
                scenario = self._scenario(draft, slot, number)
                self._made.append(scenario)
                keep([scenario])

    def _is_new(self, draft: Draft) -> bool:
        others = [*(one.task for one in self._made), *self._source.examples]
        return closest(draft.task, others) < NEARLY_THE_SAME

    def _scenario(self, draft: Draft, slot: Slot, number: int) -> Scenario:
        return Scenario(
            id=task_id(draft.task),
            task=draft.task,
            success=draft.success,
            difficulty=slot.difficulty,
            persona=slot.persona,
            tools=slot.tools,
            origin=Origin(
                source=self._source.digest,
                judge=self._model.name,
                seed=self._seed,
                slot=slot.number,
                round=number,
            ),
        )

    def _to_avoid(self, number: int) -> list[str]:
        tasks = [one.task for one in self._made]
        random.Random(f"{self._seed} {number}").shuffle(tasks)
        return tasks[:_SHOWN]

    def _check_origin(self) -> None:
        for one in self._made:
            if (one.origin.source, one.origin.seed) != (self._source.digest, self._seed):
                raise ConfigError(
                    f"scenario {one.id} in the file was made from another task, tools, examples "
                    f"or seed (source {one.origin.source}, seed {one.origin.seed})",
                    "Use another path, or load these with ruler.load_scenarios.",
                )

    def _result(self) -> list[Scenario]:
        made = [one for one in self._made if one.origin.slot < len(self._slots)]
        if not made:
            raise self._failure or JudgeAnswerError(
                f"{self._model.name} wrote no scenario that isn't nearly an example",
                "Describe the task in other words, or give fewer examples.",
            )
        if len(made) < len(self._slots):
            _log.warning(
                "%d of %d scenarios could be made; the others were duplicates or never came",
                len(made),
                len(self._slots),
            )
        return sorted(made, key=lambda one: one.origin.slot)
