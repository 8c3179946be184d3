# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""Two agents in one graph, of which one is trained.

    python examples/langgraph_multi_agent.py

A planner writes a search query, the search finds pages of Python's documentation, and a
writer says which function it is. Only the planner is trained: the writer keeps the model
that it names, here an untrained policy so that the example needs no key, and none of its
calls are recorded in the planner's rollouts. The reward is the team's: half for how high
the right page came, half for the writer's answer.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import START, StateGraph
from pydantic import SecretStr

import art_core as art
from art_core.demo.agent import search
from art_core.demo.corpus import load_corpus
from art_core.demo.grading import named_function, reciprocal_rank
from art_core.demo.scenarios import Scenario, make_scenarios
from art_core.rollouts import TrainReport
from integrations.langgraph import chat_model, rollout, trace

INDEX = Path(tempfile.gettempdir()) / "art-python-documentation.sqlite"
planner = art.TrainableModel(name="planner", project="langgraph", base_model="smollm2-135m")
writer = art.TrainableModel(name="writer", project="langgraph", base_model="smollm2-135m")

planner_llm = ChatOpenAI(model="gpt-4.1", api_key=SecretStr("your key"), max_completion_tokens=16)
writer_llm = chat_model(writer, max_tokens=12, temperature=0)


class State(TypedDict):
    question: str
    query: str
    pages: list[str]
    answer: str


async def plan(state: State) -> dict[str, str]:
    prompt = "Reply with a search query for documentation."
    reply = await planner_llm.ainvoke([("system", prompt), ("user", state["question"])])
    return {"query": reply.text}


def look_up(state: State) -> dict[str, list[str]]:
    return {"pages": search(INDEX, state["query"])}


async def write(state: State) -> dict[str, str]:
    found = ", ".join(state["pages"]) or "nothing"
    prompt = f"{state['question']}\nFound: {found}. Which one is it? Reply with its name only."
    return {"answer": (await writer_llm.ainvoke(prompt)).text}


builder = StateGraph(State)
builder.add_sequence([plan, look_up, write])
builder.add_edge(START, "plan")
team = trace(builder.compile(), train=["plan"])


@rollout(planner)
async def answer(task: Scenario) -> tuple[str, float]:
    state = await team.ainvoke({"question": task.question, "query": "", "pages": [], "answer": ""})
    found = reciprocal_rank(state["pages"], task.function)
    named = named_function(state["answer"]) == task.function
    return state["answer"], (found + named) / 2


async def main(steps: int, held_out: int, root: str) -> TrainReport:
    corpus = load_corpus()
    corpus.write_index(INDEX)
    tasks = make_scenarios(corpus, held_out=held_out)
    config = art.TrainConfig(
        steps=steps, groups_per_step=8, learning_rate=1.5e-3, eval_every=steps, seed=1
    )
    async with art.LocalBackend(root) as backend:
        await planner.register(backend)
        await writer.register(backend)
        return await art.train(planner, answer, tasks.training, config, validation=tasks.held_out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--held-out", type=int, default=32)
    parser.add_argument("--root", default=".art")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.steps, arguments.held_out, arguments.root))
