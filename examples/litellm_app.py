# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""An app on litellm, trained by changing its model string.

    python examples/litellm_app.py

The app sorts support tickets: its model is shown three, and asked for one word, the team.
The reward is what the app needs: that word, and the right one.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
from typing import Any

import art_core as art
import integrations.litellm
from art_core.rollouts import TrainReport

integrations.litellm.register()

import litellm  # noqa: E402 (register() imports it, with the provider art/)

TEAMS = ("billing", "shipping", "technical")


EXAMPLES = {
    "There is a fee on my bill that I do not know.": "billing",
    "The box came to the wrong house.": "shipping",
    "The screen stays black after the start.": "technical",
}
SHOWN = [
    message
    for ticket, team in EXAMPLES.items()
    for message in (
        {"role": "user", "content": ticket},
        {"role": "assistant", "content": team},
    )
]


async def sort_ticket(ticket: str) -> str:
    """The app. It said model="openai/gpt-4.1" before."""
    answer: Any = await litellm.acompletion(
        model="art/ticket-sorter",
        messages=[
            {
                "role": "system",
                "content": f"Reply with one word, the team for the ticket: {', '.join(TEAMS)}.",
            },
            *SHOWN,
            {"role": "user", "content": ticket},
        ],
        max_tokens=8,
    )
    return answer.choices[0].message.content or ""


_OPENINGS = ("Hello, ", "", "Second time I write: ", "Please help, ", "I am annoyed: ", "Hi team, ")
_PROBLEMS = {
    "billing": (
        "I was charged twice this month",
        "the invoice shows the wrong amount",
        "my refund has not been paid",
        "the payment by card was declined",
    ),
    "shipping": (
        "my parcel has not arrived",
        "the package was delivered to a neighbour",
        "the courier lost my order",
        "I want to change the delivery address",
    ),
    "technical": (
        "the app crashes when I open it",
        "I get an error when I log in",
        "the page does not load",
        "the update broke the search",
    ),
}
TICKETS = [
    {"ticket": f"{opening}{problem}.", "team": team}
    for team, problems in _PROBLEMS.items()
    for opening, problem in itertools.product(_OPENINGS, problems)
]

model = art.TrainableModel(
    name="ticket-sorter",
    project="litellm",
    base_model="smollm2-135m",
    capture=art.CaptureConfig(hosts=()),
)


async def play(scenario: dict[str, str]) -> art.Trajectory:
    async with model.rollout(scenario) as trajectory:
        reply = await sort_ticket(scenario["ticket"])
    trajectory.reward = grade(reply, scenario["team"])
    trajectory.metrics = {"right": reply.strip(" .\n").lower() == scenario["team"]}
    return trajectory


def grade(reply: str, team: str) -> float:
    """1 for the team alone; a half for an answer that names it and no other."""
    named = [each for each in TEAMS if each in reply.lower()]
    if named != [team]:
        return 0.0
    return 1.0 if reply.strip(" .\n").lower() == team else 0.5


async def main(root: str, steps: int, seed: int) -> TrainReport:
    tickets = list(TICKETS)
    random.Random(0).shuffle(tickets)
    config = art.TrainConfig(
        steps=steps,
        groups_per_step=8,
        rollouts_per_group=8,
        learning_rate=3e-4,
        eval_every=steps,
        seed=seed,
    )
    async with art.LocalBackend(root) as backend:
        await model.register(backend)
        return await art.train(model, play, tickets[24:], config, validation=tickets[:24])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default=".art")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.root, arguments.steps, arguments.seed))
