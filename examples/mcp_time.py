"""A small model learns to use a real MCP server, ``mcp-server-time``, by reward alone.

    pip install mcp-server-time
    python examples/mcp_time.py

Asked what time it is somewhere else, the agent has the server's ``convert_time``, shown in
two examples. A model of 135 million parameters often writes calls that can't be read or
have wrong arguments, and seldom copies the right part of the result. The reward looks at
the call and at the answer; no judge, no fine-tuning.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import art_core as art
from art_core.rollouts import TrainReport
from art_core.trajectories import Message
from integrations.mcp import Limits, MCPAgent, Outcome, ServerPool, StdioServer

# fmt: off
ZONES = (
    "Africa/Cairo", "Africa/Lagos", "Africa/Nairobi", "America/Bogota", "America/Chicago",
    "America/Denver", "America/Lima", "America/New_York", "America/Toronto", "Asia/Bangkok",
    "Asia/Dubai", "Asia/Kolkata", "Asia/Manila", "Asia/Seoul", "Asia/Shanghai", "Asia/Tokyo",
    "Australia/Perth", "Australia/Sydney", "Europe/Athens", "Europe/Berlin", "Europe/Lisbon",
    "Europe/London", "Europe/Madrid", "Europe/Oslo", "Europe/Paris", "Europe/Rome",
    "Europe/Vienna", "Pacific/Auckland", "Pacific/Honolulu",
)
# fmt: on
Scenario = dict[str, str]


def scenarios(count: int, seed: int = 0) -> list[Scenario]:
    """Questions, each about another pair of zones."""
    choose = random.Random(seed)
    pairs = choose.sample([(a, b) for a in ZONES for b in ZONES if a != b], count)
    return [
        question(source, f"{choose.randrange(24):02}:{choose.choice((0, 15, 30, 45)):02}", target)
        for source, target in pairs
    ]


def question(source: str, time: str, target: str) -> Scenario:
    return {
        "task": f"It is {time} in {source}. What time is it in {target}?",
        "source_timezone": source,
        "time": time,
        "target_timezone": target,
    }


def converted(scenario: Scenario) -> dict[str, str]:
    """Both ends of the conversion today, as the server writes them."""
    hour, minute = map(int, scenario["time"].split(":"))
    here, there = ZoneInfo(scenario["source_timezone"]), ZoneInfo(scenario["target_timezone"])
    start = datetime.now(here).replace(hour=hour, minute=minute, second=0, microsecond=0)
    return {"source": start.isoformat(), "target": start.astimezone(there).isoformat()}


def clock(moment: str) -> str:
    return moment[11:16]


def example(number: int, scenario: Scenario) -> list[Message]:
    """How it is done, as the agent's own earlier work; results are cut to what matters."""
    arguments = {key: value for key, value in scenario.items() if key != "task"}
    call_id = f"call_{number}"
    function: Message = {"name": "convert_time", "arguments": json.dumps(arguments)}
    ends = converted(scenario)
    shown = {
        "source": {"timezone": scenario["source_timezone"], "datetime": ends["source"]},
        "target": {"timezone": scenario["target_timezone"], "datetime": ends["target"]},
    }
    return [
        {"role": "user", "content": scenario["task"]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": json.dumps(shown, indent=2)},
        {"role": "assistant", "content": clock(ends["target"])},
    ]


EXAMPLES = [
    *example(1, question("Asia/Tokyo", "16:30", "Europe/Warsaw")),
    *example(2, question("America/Caracas", "09:45", "Asia/Jakarta")),
    *example(3, question("Europe/Zurich", "23:00", "America/Phoenix")),
]


def grade(outcome: Outcome) -> float:
    """A fifth for a call that fits the tool, one for each right argument of the best such
    call, and one for the right answer after a right call."""
    scenario: Scenario = outcome.scenario
    wanted = {key: value for key, value in scenario.items() if key != "task"}
    hits = [
        sum((call.arguments or {}).get(key) == value for key, value in wanted.items())
        for call in outcome.calls
        if call.valid
    ]
    right = max(hits, default=0) == len(wanted)
    solved = right and outcome.answer.strip(" .\n") == clock(converted(scenario)["target"])
    outcome.trajectory.metrics |= {
        "valid_call": bool(hits),
        "right_call": right,
        "solved": solved,
    }
    return (bool(hits) + max(hits, default=0) + solved) / 5


async def main(steps: int, held_out: int, root: str) -> TrainReport:
    model = art.TrainableModel(name="time", project="mcp", base_model="smollm2-135m")
    questions = scenarios(64 + held_out)
    config = art.TrainConfig(
        steps=steps, groups_per_step=4, learning_rate=5e-4, eval_every=steps, seed=1
    )
    command = str(Path(sys.executable).with_name("mcp-server-time"))
    servers = ServerPool(StdioServer(command=command), isolation="shared")
    async with art.LocalBackend(root) as backend, servers:
        await model.register(backend)
        agent = MCPAgent(
            model,
            servers,
            reward=grade,
            limits=Limits(max_turns=3, max_tokens=64, max_calls_per_turn=2),
            system="Answer with the time.",
            examples=EXAMPLES,
            tools=["convert_time"],
        )
        return await art.train(
            model, agent, questions[held_out:], config, validation=questions[:held_out]
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--held-out", type=int, default=24)
    parser.add_argument("--root", default=".art")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.steps, arguments.held_out, arguments.root))
