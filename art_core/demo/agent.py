"""An agent that finds functions by searching documentation. An ordinary script:

    OPENAI_API_KEY=… python agent.py index.sqlite "I need something that … Which function is that?"

It asks a model for a search query, searches, shows the model what was found, and asks
which function it is. It uses the plain ``openai`` client, imports nothing of ART Core and
knows nothing of being trained. ``index.sqlite`` has a full-text table ``pages(name, text)``.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from openai import AsyncOpenAI

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

INSTRUCTIONS = (
    "You find functions in documentation. First reply with a search query. "
    "When you see the results, reply with the name of the function."
)
RESULTS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """How the agent got to its answer."""

    query: str
    pages: list[str]
    """Names of the pages found, the best match first."""
    answer: str


async def find_function(
    client: AsyncOpenAI, index: Path, question: str, *, model: str = "gpt-4.1-mini"
) -> Finding:
    """Answer a question in two turns: a search query, then the name of a function."""
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": question},
    ]
    query = await _reply(client, model, messages, max_tokens=16)
    pages = search(index, query)
    found = ", ".join(pages) if pages else "nothing"
    messages.append({"role": "assistant", "content": query})
    messages.append({"role": "user", "content": f"Found: {found}. So the function is called"})
    answer = await _reply(client, model, messages, max_tokens=16)
    return Finding(query, pages, answer)


def search(index: Path, query: str, limit: int = RESULTS_SHOWN) -> list[str]:
    """Names of the pages that have any of the query's words, by BM25."""
    # A name in code is looked for as a whole: one that was made up is found nowhere.
    words = re.findall(r"\w+", query)
    if not words:
        return []
    expression = " OR ".join(f'"{word}"' for word in words)
    with closing(sqlite3.connect(f"{index.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        rows = connection.execute(
            "SELECT name FROM pages WHERE pages MATCH ? ORDER BY bm25(pages), name LIMIT ?",
            (expression, limit),
        )
        return [name for (name,) in rows]


async def _reply(
    client: AsyncOpenAI, model: str, messages: list[ChatCompletionMessageParam], max_tokens: int
) -> str:
    response = await client.chat.completions.create(
        model=model, messages=messages, max_tokens=max_tokens
    )
    return response.choices[0].message.content or ""


def main() -> None:
    parser = argparse.ArgumentParser(description="Find a function by searching documentation.")
    parser.add_argument("index", type=Path)
    parser.add_argument("question")
    parser.add_argument("--model", default="gpt-4.1-mini")
    arguments = parser.parse_args()
    finding = asyncio.run(
        find_function(AsyncOpenAI(), arguments.index, arguments.question, model=arguments.model)
    )
    print(f"searched for: {finding.query}")
    print(f"found: {', '.join(finding.pages) or 'nothing'}")
    print(f"answer: {finding.answer}")


if __name__ == "__main__":
    main()
