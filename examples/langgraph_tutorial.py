# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""A graph as LangGraph's tutorials write them, trained by adding one line.

    python examples/langgraph_tutorial.py

The graph asks a hard-coded ``ChatOpenAI`` for a search query and searches Python's own
documentation with it. Inside a rollout that model's calls are served by a small model
on this machine, which learns what a good query is from nothing but how high the right
page came. Everything between the two lines of dashes is the tutorial's; the line
marked with an arrow is what was added.
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
from art_core.demo.scenarios import Scenario, make_scenarios
from art_core.rollouts import TrainReport
from integrations.langgraph import rollout

INDEX = Path(tempfile.gettempdir()) / "art-python-documentation.sqlite"
model = art.TrainableModel(name="tutorial", project="langgraph", base_model="smollm2-135m")

# ----------------------------------------------------------------------------------------
llm = ChatOpenAI(model="gpt-4.1-mini", api_key=SecretStr("your key"), max_completion_tokens=16)


class State(TypedDict):
    question: str
    query: str
    pages: list[str]


async def write_query(state: State) -> dict[str, str]:
    prompt = "Reply with a search query for documentation."
    reply = await llm.ainvoke([("system", prompt), ("user", state["question"])])
    return {"query": reply.text}


def retrieve(state: State) -> dict[str, list[str]]:
    return {"pages": search(INDEX, state["query"])}


builder = StateGraph(State)
builder.add_sequence([write_query, retrieve])
builder.add_edge(START, "write_query")
graph = builder.compile()


@rollout(model)  # <---- the line that was added
async def find(task: Scenario) -> float:
    """How high the right page came: 1 for the first, 1/2 for the second, …"""
    found = (await graph.ainvoke({"question": task.question, "query": "", "pages": []}))["pages"]
    return 1 / (found.index(task.function) + 1) if task.function in found else 0.0


# ----------------------------------------------------------------------------------------


async def main(steps: int, held_out: int, root: str) -> TrainReport:
    corpus = load_corpus()
    corpus.write_index(INDEX)
    tasks = make_scenarios(corpus, held_out=held_out)
    config = art.TrainConfig(
        steps=steps, groups_per_step=8, learning_rate=1.5e-3, eval_every=steps, seed=1
    )
    async with art.LocalBackend(root) as backend:
        await model.register(backend)
        return await art.train(model, find, tasks.training, config, validation=tasks.held_out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--held-out", type=int, default=32)
    parser.add_argument("--root", default=".art")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.steps, arguments.held_out, arguments.root))
