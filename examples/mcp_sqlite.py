"""A small model learns to ask a database, by ``mcp-server-sqlite``.

    pip install uv
    python -m examples.mcp_sqlite

``uvx`` starts the server in an environment of its own: it was written for MCP's SDK of 2025.
It's asked about the goods of a shop, must write a query that finds the answer, in
whatever words, and answer with it. Held-out questions are about goods that nothing else was
about. ``read_query`` only reads, so the database stays as it is.
"""

from __future__ import annotations

import random
import shlex
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from examples import mcp_shared
from examples.mcp_shared import Example, Scenario
from integrations.mcp import StdioServer, ToolCall

COMMAND = "uvx --with mcp==1.6.0 --with pydantic==2.11.10 mcp-server-sqlite"
DATABASE = Path("shop.db")
MADE_OF = ("oak", "pine", "steel", "glass", "wool", "linen", "clay", "cork", "brass", "jute")
KINDS = (
    "lamp", "chair", "desk", "mirror", "rug", "clock", "vase", "shelf", "stool", "bench",
    "bowl", "tray", "basket", "hook", "frame",
)  # fmt: skip
ASKED = {
    "price": "What does the {name} cost?",
    "stock": "How many of the {name} are in stock?",
    "supplier": "Who supplies the {name}?",
}
SUPPLIERS = ("Nord", "Halden", "Brix", "Tamsin", "Okoro", "Vela")


def build(path: Path, seed: int = 0) -> None:
    """The same goods for the same seed; what was there is replaced."""
    chance = random.Random(seed)
    names = [f"{made_of} {kind}" for made_of in MADE_OF for kind in KINDS]
    rows = [
        (name, chance.choice(SUPPLIERS), chance.randint(5, 400), chance.randint(10, 99))
        for name in names
    ]
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE goods (name TEXT, supplier TEXT, price INT, stock INT)")
        database.executemany("INSERT INTO goods VALUES (?, ?, ?, ?)", rows)


def scenarios(path: Path, seed: int = 0) -> list[Scenario]:
    """A question about each of the goods; the database itself says what is right."""
    chance = random.Random(seed)
    with closing(sqlite3.connect(path)) as database:
        names: Iterable[tuple[str]] = database.execute("SELECT name FROM goods").fetchall()
        made: list[Scenario] = []
        for (name,) in names:
            column = chance.choice(list(ASKED))
            query = f"SELECT {column} FROM goods WHERE name = '{name}'"
            ((answer,),) = database.execute(query).fetchall()
            task = ASKED[column].format(name=name)
            made.append(mcp_shared.scenario(task, "read_query", {"query": query}, str(answer)))
    return mcp_shared.shuffled(made)


def found(call: ToolCall, wanted: Scenario) -> float:
    """1 for a query that finds the answer and nothing else, however it is written."""
    answer = wanted["demonstration"]["answer"]
    value = answer if answer.isdigit() else repr(answer)
    return float(
        not call.is_error and call.result.endswith(f": {value}}}]") and "," not in call.result
    )


def example(database: Path = DATABASE, command: str = COMMAND) -> Example:
    build(database)
    line = f"{command} --db-path {shlex.quote(str(database.resolve()))}"
    return Example(
        name="sqlite",
        server=StdioServer.from_command(line),
        tools=["read_query"],
        system="There is a table goods (name, supplier, price, stock). Call the tool, then "
        "answer with what was asked for alone.",
        scenarios=scenarios(database),
        share=found,
    )


if __name__ == "__main__":
    options = mcp_shared.parser(__doc__, COMMAND)
    options.add_argument("--database", type=Path, default=DATABASE, help="made anew")
    given = options.parse_args()
    mcp_shared.run(example(given.database, given.server), given)
