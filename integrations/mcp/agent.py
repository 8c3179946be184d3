"""`MCPAgent`: rollouts of a tool-using agent on MCP servers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from art_core.errors import ScenarioError, ToolServerDiedError
from art_core.rollouts import TrainableModel
from art_core.rollouts.scenarios import scenario_json
from art_core.trajectories import Message, Trajectory, TrajectoryStatus
from integrations.mcp.loop import AgentRun, Limits, run_agent
from integrations.mcp.pool import ServerPool, Workspace
from integrations.mcp.toolbox import Toolbox, ToolCall

if TYPE_CHECKING:
    from openai import AsyncOpenAI

SYSTEM = "Do what the user asks. Call the tools you need, then answer."
_RETRIES = 2
"""Times that a rollout whose server died is played again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A run of the agent, as a reward function is given it. Its servers are still running."""

    scenario: Any
    answer: str
    """The last thing the model said; empty where a limit cut it off before."""
    calls: Sequence[ToolCall]
    messages: Sequence[Message]
    trajectory: Trajectory
    sandbox: Path | None
    """The folder that the tools worked in."""
    workspace: Workspace


Reward = Callable[[Outcome], "float | Awaitable[float]"]
Actor = Callable[[Any, Sequence[Message], Toolbox, Limits], Awaitable[AgentRun]]
"""Plays a scenario from its opening messages on, in the policy's place."""


class MCPAgent:
    """Plays scenarios: each task is given to the model with the servers' tools.

    ``art_core.train(model, agent, scenarios)`` takes it as it is. A scenario is a text, or
    anything with a ``task``.

    Args:
        model: the policy; a rollout's calls are recorded and can be trained on.
        pool: where rollouts get their servers from.
        reward: grades an `Outcome`, while the servers and the sandbox are still there.
            None: a judge scores the groups.
        system: the system message; servers' own instructions come after it.
        examples: messages between it and the task, to show how it is done.
        tools: names of the tools that the model may use; None: all.
    """

    def __init__(
        self,
        model: TrainableModel[Any],
        pool: ServerPool,
        *,
        reward: Reward | None = None,
        limits: Limits | None = None,
        system: str = SYSTEM,
        examples: Sequence[Message] = (),
        tools: Collection[str] | None = None,
    ) -> None:
        self.model = model
        self._pool = pool
        self._reward = reward
        self._limits = limits or Limits()
        self._system = system
        self._examples = list(examples)
        self._tools = tools

    async def play(self, scenario: Any) -> Trajectory:
        """One rollout. Where a server dies it's played again from the beginning, twice at most.

        Metrics: ``turns``, ``tool_calls``, ``tool_errors``, ``valid_tool_calls`` (share of
        those that fit a tool and its schema; absent without a call), ``used_tools`` (0 or 1)
        and ``server_deaths``. Metadata: ``answer``, ``stopped``, ``mcp_calls``.

        Raises:
            ToolServerDiedError: a server died each time.
            ToolServerStartError, ToolServerError: see `ServerPool.lease`.
            ScenarioError: the scenario has no task.
            RewardError: the reward isn't a finite number.
        """
        return await self._played(scenario, self._rollout)

    async def demonstrate(self, scenario: Any, actor: Actor) -> Trajectory:
        """`play` by someone else, graded in the same way: an example to learn from.

        Raises:
            ToolServerError, ScenarioError, RewardError: as `play`.
        """

        async def demonstration(scenario: Any, workspace: Workspace) -> Trajectory:
            toolbox = await self._toolbox(workspace)
            opening = self._opening(task_of(scenario), workspace)
            run = await _grouped_errors_out(actor(scenario, opening, toolbox, self._limits))
            trajectory = Trajectory(
                messages_and_choices=[*map(_as_context, opening), *run.messages[len(opening) :]],
                tools=toolbox.tools,
                metadata={"scenario": scenario_json(scenario)},
            )
            await self._finish(trajectory, scenario, run, toolbox, workspace)
            return trajectory

        return await self._played(scenario, demonstration)

    async def run(self, client: AsyncOpenAI, model: str, task: str) -> AgentRun:
        """The same loop on any model of any OpenAI-compatible server; nothing is recorded."""
        async with self._pool.lease() as workspace:
            toolbox = await self._toolbox(workspace)
            messages = self._opening(task, workspace)
            return await run_agent(client, model, messages, toolbox, self._limits)

    async def _played(
        self, scenario: Any, once: Callable[[Any, Workspace], Awaitable[Trajectory]]
    ) -> Trajectory:
        task_of(scenario)  # before a server is started for it
        deaths = 0
        while True:
            async with self._pool.lease() as workspace:
                try:
                    trajectory = await once(scenario, workspace)
                except ToolServerDiedError:
                    deaths += 1
                    if deaths > _RETRIES:
                        raise
                else:
                    trajectory.metrics["server_deaths"] = deaths
                    return trajectory

    async def _rollout(self, scenario: Any, workspace: Workspace) -> Trajectory:
        toolbox = await self._toolbox(workspace)
        opening = self._opening(task_of(scenario), workspace)
        client, model = self.model.openai_client(), self.model.get_inference_name()
        async with self.model.rollout(scenario) as trajectory:
            run = await _grouped_errors_out(
                run_agent(client, model, opening, toolbox, self._limits)
            )
        await self._finish(trajectory, scenario, run, toolbox, workspace)
        return trajectory

    async def _finish(
        self,
        trajectory: Trajectory,
        scenario: Any,
        run: AgentRun,
        toolbox: Toolbox,
        workspace: Workspace,
    ) -> None:
        """Describe and grade."""
        _describe(trajectory, run, toolbox.calls)
        if self._reward is None:
            return
        outcome = Outcome(
            scenario=scenario,
            answer=run.answer,
            calls=toolbox.calls,
            messages=run.messages[len(self._examples) :],
            trajectory=trajectory,
            sandbox=workspace.sandbox,
            workspace=workspace,
        )
        graded = self._reward(outcome)
        trajectory.reward = await graded if inspect.isawaitable(graded) else graded

    async def _toolbox(self, workspace: Workspace) -> Toolbox:
        toolbox = Toolbox(
            workspace.connections,
            only=self._tools,
            timeout=self._limits.tool_timeout,
            most_characters=self._limits.max_result_characters,
        )
        await toolbox.refresh()
        return toolbox

    def _opening(self, task: str, workspace: Workspace) -> list[Message]:
        instructions = [
            connection.redact(connection.client.instructions)
            for connection in workspace.connections
            if connection.client.instructions
        ]
        system = "\n\n".join(part for part in (self._system, *instructions) if part)
        first: list[Message] = [{"role": "system", "content": system}] if system else []
        return [*first, *self._examples, {"role": "user", "content": task}]


def task_of(scenario: Any) -> str:
    """What the agent is asked to do.

    Raises:
        ScenarioError: there is no text.
    """
    if isinstance(scenario, str):
        task: Any = scenario
    elif isinstance(scenario, Mapping):
        task = cast("Mapping[str, Any]", scenario).get("task")
    else:
        task = getattr(scenario, "task", None)
    if not isinstance(task, str) or not task.strip():
        raise ScenarioError(
            f"the task of scenario {scenario!r:.200} is {task!r:.100}",
            "Give a text, or something with a text called task.",
        )
    return task


def _as_context(message: Message) -> Message:
    """So that an example before the task isn't learned as if it were the demonstration."""
    return {**message, "weight": 0} if message["role"] == "assistant" else message


async def _grouped_errors_out(run: Awaitable[AgentRun]) -> AgentRun:
    """Of calls that ran at once and failed together, the first failure."""
    try:
        return await run
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from group


def _describe(trajectory: Trajectory, run: AgentRun, calls: Sequence[ToolCall]) -> None:
    if run.stopped != "answered":
        trajectory.status = TrajectoryStatus.TRUNCATED
        trajectory.log(f"cut off: {run.stopped}")
    trajectory.metadata |= {
        "answer": run.answer,
        "stopped": run.stopped,
        "mcp_calls": [call.as_json() for call in calls],
    }
    trajectory.metrics |= {
        "turns": run.turns,
        "tool_calls": len(calls),
        "tool_errors": sum(call.is_error for call in calls),
        "used_tools": bool(calls),
    }
    if calls:
        trajectory.metrics["valid_tool_calls"] = sum(call.valid for call in calls) / len(calls)
