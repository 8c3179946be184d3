"""A scenario: a task for an agent, and how to tell that it was done."""

from __future__ import annotations

import hashlib
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

LONGEST_TASK = 4_000
Text = Annotated[str, Field(min_length=1, max_length=LONGEST_TASK)]


class Origin(BaseModel):
    """Where a scenario comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    """Digest of the description, tools and examples that it was made from."""
    judge: str
    """The model that wrote it."""
    seed: int
    slot: int
    """Its place in the plan of that seed."""
    round: int
    """The attempt that filled the place, from 0."""


class Scenario(BaseModel):
    """One task. An agent is given ``task``; a judge is told ``success``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    """A digest of ``task``."""
    task: Text
    """What the agent is asked, as its user writes it."""
    success: Text
    """How one who sees the agent's messages can tell that it was done right."""
    difficulty: Annotated[int, Field(ge=1, le=5)]
    persona: str
    """Who asks, and in what manner."""
    tools: tuple[str, ...] = ()
    """Tools that the task needs."""
    origin: Origin

    @model_validator(mode="after")
    def _id_is_the_tasks(self) -> Self:
        if self.id != task_id(self.task):
            raise ValueError(f"id is {self.id!r}, that of this task is {task_id(self.task)!r}")
        return self


def task_id(task: str) -> str:
    """The id of a scenario with this task; spacing and case don't matter."""
    return hashlib.sha256(" ".join(task.casefold().split()).encode()).hexdigest()[:16]
