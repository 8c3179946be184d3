"""A warm start: demonstrations on the servers themselves, by a script or a stronger model."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from art_core.config import SftConfig, WarmStart
from art_core.errors import ExampleError, ScenarioError
from art_core.rollouts.scoring import Scorer
from art_core.sft.demonstrations import demonstrate, write_examples
from art_core.trajectories import Message, Trajectory, TrajectoryStatus
from integrations.mcp.agent import Actor, MCPAgent, task_of
from integrations.mcp.loop import AgentRun, Limits, run_agent
from integrations.mcp.toolbox import Toolbox

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_log = logging.getLogger("integrations.mcp")


class ScriptedCall(BaseModel):
    """A tool call of a demonstration."""

    model_config = ConfigDict(extra="forbid")

    name: str
    """As the model is shown it."""
    arguments: dict[str, JsonValue] = {}


class Demonstration(BaseModel):
    """What a scenario may carry as ``demonstration``: how it's done well."""

    model_config = ConfigDict(extra="forbid")

    calls: list[ScriptedCall]
    """One a turn; made on the server, so that their results are real."""
    answer: str
    """What is said then."""


def demonstration_of(scenario: Any) -> Demonstration:
    """Raises ScenarioError: the scenario carries none, or one that can't be played."""
    fields = cast("Mapping[str, Any]", scenario if isinstance(scenario, Mapping) else {})
    try:
        return Demonstration.model_validate(fields.get("demonstration"))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, ("demonstration", *problem["loc"])))
        raise ScenarioError(
            f"scenario {task_of(scenario)!r:.200}: {where} is {problem['input']!r:.100}: "
            f"{problem['msg']}",
            'Write "demonstration": {"calls": [{"name": …, "arguments": {…}}], "answer": …}, '
            "or have a teacher play.",
        ) from error


async def scripted(
    scenario: Any, opening: Sequence[Message], toolbox: Toolbox, limits: Limits
) -> AgentRun:
    """An `Actor` that does what the scenario's ``demonstration`` says.

    Raises:
        ScenarioError: there is none, or the server refuses one of its calls.
    """
    shown = demonstration_of(scenario)
    messages = list(opening)
    for number, call in enumerate(shown.calls, start=1):
        call_id, arguments = f"call_{number}", json.dumps(call.arguments, ensure_ascii=False)
        function: JsonValue = {"name": call.name, "arguments": arguments}
        made = await toolbox.call(call.name, arguments)
        if made.is_error:
            raise ScenarioError(
                f"scenario {task_of(scenario)!r:.200}: its demonstration's call of {call.name!r} "
                f"fails: {made.result:.500}",
                "Correct the call: a demonstration must work.",
            )
        tool_call: JsonValue = {"id": call_id, "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [tool_call]})
        messages.append({"role": "tool", "tool_call_id": call_id, "content": made.result})
    messages.append({"role": "assistant", "content": shown.answer})
    turns = len(shown.calls) + 1
    return AgentRun(messages=messages, answer=shown.answer, turns=turns, stopped="answered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """An `Actor`: a prompted model behind an OpenAI-compatible URL.

    Only what it says and calls is shown to the policy, not its reasoning. The limits are
    the policy's but for ``max_tokens``, of which reasoning would be part.
    """

    model: str
    base_url: str
    api_key: str = field(default="none", repr=False)

    async def __call__(
        self, scenario: Any, opening: Sequence[Message], toolbox: Toolbox, limits: Limits
    ) -> AgentRun:
        """Raises openai.APIError: its server failed."""
        limits = limits.model_copy(update={"max_tokens": None})
        async with self._client() as client:
            run = await run_agent(client, self.model, opening, toolbox, limits)
        said = [*opening, *map(_plain, run.messages[len(opening) :])]
        return AgentRun(messages=said, answer=run.answer, turns=run.turns, stopped=run.stopped)

    def _client(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        return AsyncOpenAI(base_url=self.base_url, api_key=self.api_key)


def named_teacher(model: str, url: str, key_env: str) -> Teacher:
    """The teacher that a command line names; a server that wants no key isn't given one."""
    return Teacher(model=model, base_url=url, api_key=os.environ.get(key_env, "none"))


async def warm_start(
    agent: MCPAgent,
    path: Path,
    scenarios: Sequence[Any],
    actor: Actor = scripted,
    *,
    attempts: int = 1,
    min_reward: float | None = None,
    reward: Scorer | None = None,
    sft: SftConfig | None = None,
) -> WarmStart:
    """Demonstrations for ``TrainConfig(warm_start=…)``, played on the agent's servers.

    The best of ``attempts`` at each scenario is kept, if it came to an answer. They are
    kept in ``path``: a run that goes on finds them there.

    Args:
        actor: plays; `scripted`, or a `Teacher`.
        min_reward: rollouts with less are left out, and said to be.
        reward: scores groups, for an agent without a reward of its own.

    Raises:
        ScenarioError: a scenario carries no demonstration for `scripted`.
        TooManyFailuresError, RewardError, ExampleError: see
            `art_core.sft.demonstrations.demonstrate`.
    """
    sft = sft or SftConfig()
    if path.exists():
        return WarmStart(examples=path, sft=sft)
    if actor is scripted:
        for scenario in scenarios:
            demonstration_of(scenario)

    async def play(scenario: Any) -> Trajectory:
        return await agent.demonstrate(scenario, actor)

    best = await demonstrate(
        play, scenarios, attempts=attempts, min_reward=min_reward, reward=reward
    )
    whole = [one for one in best if one.status is TrajectoryStatus.FINISHED]
    if not whole:
        raise ExampleError(
            f"none of {len(scenarios)} demonstrations came to an answer",
            "Raise the limits, or use a stronger teacher.",
        )
    if len(whole) < len(scenarios):
        _log.warning("%d of %d scenarios were demonstrated well", len(whole), len(scenarios))
    write_examples(path, whole)
    return WarmStart(examples=path, sft=sft)


def _plain(message: Message) -> Message:
    kept = {"role", "content", "tool_calls", "tool_call_id"}
    return {key: value for key, value in message.items() if key in kept}
