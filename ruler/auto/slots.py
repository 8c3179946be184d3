"""The plan of a scenario set: who asks, how hard, with which tools. Variety by construction.

Left to themselves models write the same few tasks again and again, so what is to
differ is fixed before they are asked: difficulties in equal numbers, each tool needed
as often as any other, personas and manners all used before one comes again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

DIFFICULTIES = {
    1: "one obvious step",
    2: "one step with a detail to get right",
    3: "two or three steps",
    4: "several steps that depend on each other",
    5: "several dependent steps with an edge case or a trap on the way",
}
PERSONAS = (
    "someone who does this for the first time",
    "an expert in a hurry",
    "a student with homework",
    "a manager who wants a result for a meeting",
    "a careful person who wants every detail right",
    "someone who isn't a native speaker",
    "a developer who is debugging something",
    "a parent organising a household",
    "a journalist checking facts",
    "an analyst preparing figures",
    "a support agent helping a customer",
    "a traveller on the way",
    "a researcher comparing alternatives",
    "a shop owner with a practical problem",
    "a volunteer planning an event",
    "someone who is annoyed because it failed before",
)
MANNERS = (
    "in one short sentence",
    "politely, with some background first",
    "as a terse note without a greeting",
    "as a question",
    "with a detail that isn't needed",
    "with the important condition at the end",
    "in two parts",
    "with exact names and numbers",
)
_MOST_TOOLS = 3
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A scenario that is to be written."""

    number: int
    difficulty: int
    persona: str
    tools: tuple[str, ...]

    def brief(self) -> str:
        """For the one who writes it."""
        needs = f"; needs the tools {', '.join(self.tools)}" if self.tools else ""
        level = f"difficulty {self.difficulty} of 5 ({DIFFICULTIES[self.difficulty]})"
        return f"{level}; asked by {self.persona}{needs}"


def plan(count: int, tools: Sequence[str], seed: int) -> list[Slot]:
    """``count`` slots; those of a smaller count are the first of a larger one."""
    names = tuple(dict.fromkeys(tools))
    generator = random.Random(seed)
    difficulties = _in_turns(tuple(DIFFICULTIES), generator)
    personas = _in_turns(PERSONAS, generator)
    manners = _in_turns(MANNERS, generator)
    next_tool = _in_turns(names, generator) if names else None
    slots: list[Slot] = []
    for number in range(count):
        difficulty = next(difficulties)
        wanted = min(1 + difficulty // 2, _MOST_TOOLS, len(names))
        chosen: list[str] = []
        while next_tool is not None and len(chosen) < wanted:
            tool = next(next_tool)
            if tool not in chosen:
                chosen.append(tool)
        slots.append(
            Slot(
                number=number,
                difficulty=difficulty,
                persona=f"{next(personas)}, {next(manners)}",
                tools=tuple(chosen),
            )
        )
    return slots


def _in_turns(values: Sequence[T], generator: random.Random) -> Iterator[T]:
    """All values in random order, then all again in another, for ever."""
    while True:
        yield from generator.sample(values, len(values))
