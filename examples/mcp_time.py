"""A small model learns to use a real MCP server, ``mcp-server-time``.

    pip install mcp-server-time
    python -m examples.mcp_time

Asked what time it is somewhere else, it must call ``convert_time`` with the right zones and
time, and answer with the right part of what comes back. Held-out questions are about pairs
of zones that neither a demonstration nor a rollout was about.
"""

from __future__ import annotations

import random
from datetime import datetime
from zoneinfo import ZoneInfo

from examples import mcp_shared
from examples.mcp_shared import Example, Scenario
from integrations.mcp import StdioServer

COMMAND = mcp_shared.installed("mcp-server-time")
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


def scenarios(count: int = 240, seed: int = 0) -> list[Scenario]:
    """Questions, each about another pair of zones."""
    choose = random.Random(seed)
    pairs = choose.sample([(a, b) for a in ZONES for b in ZONES if a != b], count)
    return [
        question(source, f"{choose.randrange(24):02}:{choose.choice((0, 15, 30, 45)):02}", target)
        for source, target in pairs
    ]


def question(source: str, time: str, target: str) -> Scenario:
    return mcp_shared.scenario(
        f"It is {time} in {source}. What time is it in {target}?",
        "convert_time",
        {"source_timezone": source, "time": time, "target_timezone": target},
        converted(source, time, target),
    )


def converted(source: str, time: str, target: str) -> str:
    """The time there, today."""
    hour, minute = map(int, time.split(":"))
    here = datetime.now(ZoneInfo(source)).replace(hour=hour, minute=minute)
    return here.astimezone(ZoneInfo(target)).strftime("%H:%M")


def example(command: str = COMMAND) -> Example:
    return Example(
        name="time",
        server=StdioServer.from_command(command),
        tools=["convert_time"],
        system="Call the tool, then answer with the time alone, as HH:MM.",
        scenarios=scenarios(),
    )


if __name__ == "__main__":
    given = mcp_shared.parser(__doc__, COMMAND).parse_args()
    mcp_shared.run(example(given.server), given)
