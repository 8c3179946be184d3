# pyright: reportUnknownMemberType=false
"""A model that never succeeds learns a tool from a few examples, and the rest by reward.

    python examples/warm_start.py --seeds 3

A small shop's assistant must call the right one of three tools with the right arguments,
and then say what the tool found. The embedded 135M model can't do that at all, so rewards
alone would teach it nothing: all its rollouts fail alike. Sixty demonstrations about a few
goods and towns, played by a script, open the door; reinforcement learning on questions about
many more goes on from there.

Prints, and draws into ``warm_start.png``, the share of held-out questions (other goods,
other towns) that were answered by a right call: before, after the demonstrations, and after
the reinforcement learning.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from openai import AsyncOpenAI

import art_core as art
from art_core.config import SftConfig
from art_core.rollouts import TrainReport
from art_core.sft.demonstrations import demonstrated

SYSTEM = "You work in a shop. Use the tools, then answer in one short sentence."


def words(text: str) -> list[str]:
    return text.split()


GOODS = words(
    "lamp chair sofa desk mirror rug clock vase shelf stool bench kettle spoon plate bowl ladder "
    "drawer hammock hook towel blanket carpet cushion jug tray bucket broom bell crate barrel "
    "tent torch globe easel piano drum violin kite scarf hat"
)
HELD_OUT_GOODS = words(
    "table pillow curtain candle basket mug wardrobe cradle teapot lantern armchair trolley"
)
TOWNS = words(
    "Oslo Paris Rome Berlin Madrid Vienna Dublin Prague Bergen Milan Turin Lyon Porto Malaga "
    "Bonn Graz"
)
HELD_OUT_TOWNS = words("Lisbon Athens Warsaw Zurich Geneva Krakow Naples Seville")
CURRENCIES = {"euros": "EUR", "dollars": "USD", "pounds": "GBP", "yen": "JPY"}
QUANTITIES = {"one": 1, "two": 2, "three": 3, "four": 4, "half a dozen": 6, "a dozen": 12}


def tool(name: str, description: str, **types: str) -> dict[str, Any]:
    properties = {argument: {"type": kind} for argument, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


TOOLS = [
    tool("get_stock", "How many are left in a town", item="string", town="string"),
    tool("get_price", "Price in a currency (EUR, USD, …)", item="string", currency="string"),
    tool("place_order", "Order goods", item="string", quantity="integer"),
]
STOCK = (
    "How many {item}s are left in {town}?",
    "Do you still have a {item} in {town}?",
    "Is the {item} sold out in {town}?",
)
PRICE = (
    "What does a {item} cost in {currency}?",
    "How many {currency} is the {item}?",
    "I pay in {currency}. How much for a {item}?",
)
ORDER = (
    "I would like {quantity} of the {item}s, please.",
    "Send me {quantity} {item}s.",
    "Please order: {item}, {quantity}.",
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the call that answers it, and what the tool then says."""

    text: str
    tool: str
    arguments: dict[str, Any]
    result: int


def questions(count: int, seed: int, goods: list[str], towns: list[str]) -> list[Question]:
    """Different questions, a third of them for each tool."""
    chance = random.Random(f"{seed}/{goods[0]}/{len(goods)}")
    made: dict[str, Question] = {}
    while len(made) < count:
        item, result = chance.choice(goods), chance.randint(10, 99)
        kind = len(made) % 3
        if kind == 0:
            town = chance.choice(towns)
            text = chance.choice(STOCK).format(item=item, town=town)
            question = Question(text, "get_stock", {"item": item, "town": town}, result)
        elif kind == 1:
            word = chance.choice(list(CURRENCIES))
            text = chance.choice(PRICE).format(item=item, currency=word)
            arguments = {"item": item, "currency": CURRENCIES[word]}
            question = Question(text, "get_price", arguments, result)
        else:
            word = chance.choice(list(QUANTITIES))
            text = chance.choice(ORDER).format(item=item, quantity=word)
            arguments = {"item": item, "quantity": QUANTITIES[word]}
            question = Question(text, "place_order", arguments, result)
        made.setdefault(text, question)
    return list(made.values())


def says(question: Question) -> str:
    """What the tool answers."""
    number = question.result
    return {
        "get_stock": f"{number} left",
        "get_price": f"{number}.00",
        "place_order": f"order {number} placed",
    }[question.tool]


async def assist(client: AsyncOpenAI, question: Question) -> art.Trajectory:
    """The agent: an ordinary loop over an OpenAI client."""
    messages: list[Any] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": question.text},
    ]
    trajectory = art.Trajectory()
    marks = dict.fromkeys(("called", "tool", "arguments", "answered"), False)
    for max_tokens in (48, 24):
        reply = await client.chat.completions.create(
            model="gpt-4.1-mini", messages=messages, tools=cast("Any", TOOLS), max_tokens=max_tokens
        )
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        calls = cast("list[Any]", message.tool_calls or [])
        if not calls:
            marks["answered"] = marks["called"] and str(question.result) in (message.content or "")
            break
        marks["called"] = len(calls) == 1
        marks["tool"] = calls[0].function.name == question.tool
        marks["arguments"] = json.loads(calls[0].function.arguments) == question.arguments
        result = says(question) if marks["tool"] and marks["arguments"] else "error"
        messages.append({"role": "tool", "tool_call_id": calls[0].id, "content": result})
    trajectory.messages_and_choices = messages
    trajectory.metrics = {**marks, "success": all(marks.values())}
    trajectory.reward = sum(marks.values()) / len(marks)
    return trajectory


async def scripted(question: Question) -> art.Trajectory:
    """A demonstration: what a good assistant would have said."""
    number = question.result
    answer = {
        "get_stock": f"There are {number} left.",
        "get_price": f"It costs {number}.00.",
        "place_order": f"Done: your order is {number}.",
    }[question.tool]
    call = {"name": question.tool, "arguments": json.dumps(question.arguments)}
    return art.Trajectory(
        tools=cast("Any", TOOLS),
        messages_and_choices=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": question.text},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call_1", "type": "function", "function": cast("Any", call)}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": says(question)},
            {"role": "assistant", "content": answer},
        ],
        reward=1.0,
    )


async def run(seed: int, settings: argparse.Namespace) -> TrainReport:
    root: Path = settings.root
    model = art.TrainableModel(
        name=f"shop-seed{seed}", project="warm-start", base_model="smollm2-135m"
    )

    async def play(question: Question) -> art.Trajectory:
        async with model.rollout(question) as trajectory:
            client = model.openai_client().with_options(
                base_url=trajectory.base_url, api_key=trajectory.api_key
            )
            played = await assist(client, question)
        trajectory.reward, trajectory.metrics = played.reward, played.metrics
        return trajectory

    warm_start = await demonstrated(
        root / f"demonstrations-seed{seed}.jsonl",
        scripted,
        questions(settings.demonstrations, seed, GOODS[:6], TOWNS[:4]),
        sft=SftConfig(
            epochs=2, batch_size=8, learning_rate=2e-3, seed=seed, max_tokens_per_pass=1024
        ),
    )
    config = art.TrainConfig(
        warm_start=warm_start,
        steps=1 + settings.rl_steps,
        groups_per_step=8,
        rollouts_per_group=8,
        learning_rate=5e-4,
        warmup_updates=2,
        seed=seed,
        eval_every=1 + settings.rl_steps,
        keep_checkpoints=1,
        max_tokens_per_pass=1024,
    )
    async with art.LocalBackend(root) as backend:
        await model.register(backend)
        return await art.train(
            model,
            play,
            questions(200, seed, GOODS, TOWNS),
            config,
            validation=questions(settings.held_out, seed, HELD_OUT_GOODS, HELD_OUT_TOWNS),
        )


def successes(report: TrainReport) -> tuple[float, float, float]:
    """Share of held-out questions right at the base model, after SFT, and after RL."""
    found = {row.step: row.metrics["success"] for row in report.rows if row.split == "val"}
    return found[0], found[1], found[report.steps]


def draw(results: list[tuple[float, float, float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    places = range(3)
    for seed, shares in enumerate(results):
        axes.plot(places, shares, marker="o", alpha=0.7, label=f"seed {seed}")
    axes.set_xticks(places, ["base", "SFT", "SFT + RL"])
    axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel("held-out questions answered by a right call")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="SFT on a few demonstrations, then RL.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--demonstrations", type=int, default=60)
    parser.add_argument("--rl-steps", type=int, default=7)
    parser.add_argument("--held-out", type=int, default=48)
    parser.add_argument("--root", type=Path, default=Path(".art"))
    settings = parser.parse_args()
    results: list[tuple[float, float, float]] = []
    for seed in range(settings.seeds):
        started = time.monotonic()
        results.append(successes(asyncio.run(run(seed, settings))))
        base, sft, both = results[-1]
        seconds = time.monotonic() - started
        print(f"seed {seed}: base {base:.1%}, SFT {sft:.1%}, SFT + RL {both:.1%} ({seconds:.0f} s)")
    draw(results, settings.root / "warm_start.png")
    print(f"plot: {settings.root / 'warm_start.png'}")


if __name__ == "__main__":
    main()
