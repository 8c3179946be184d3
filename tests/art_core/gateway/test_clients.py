"""Real agents, each written with another client, on a real gateway: alone, and 32 at once."""

from __future__ import annotations

import asyncio
import functools
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import openai
import pytest

from art_core.rollouts.backend import RolloutTicket
from art_core.trajectories import Completion, CompletionStatus, build_histories
from tests.art_core.gateway.clients.agents import AGENTS, Agent, run
from tests.art_core.gateway.scripted import Bench, Step, ask, user

LONG = ["litellm"]
"""Takes seconds to import."""
NPM = ["openai@6.49.0", "typescript@7.0.2", "@types/node@26.6.7"]
CLIENTS = Path(__file__).with_name("clients")


@pytest.fixture
def answering_bench(tool_bench: Bench) -> Bench:
    """Asks for the tool, in a spelling that no serialiser would choose; then answers."""

    def script(prompt: list[int], grammar: str | None) -> list[Step]:
        text = tool_bench.chat.decode(prompt)
        who = re.findall(r"agent (\d+)", text)[-1]
        *_, last, _ = text.split("<|im_start|>")
        if grammar is not None:
            said = f'{{"where":  "{who}"}}'
        elif "<tool_response>" in last:
            said = f"{who} is h\u00e9re"
        else:
            arguments = f'{{"times":1.0 , "who": "\\u003{who[0]}{who[1:]}"}}'
            said = f'<tool_call>\n{{"arguments": {arguments}, "name": "look_up"}}\n</tool_call>'
        return [[token] for token in [*tool_bench.marked(said), tool_bench.end]]

    tool_bench.engine.script = lambda prompt, sampling: script(prompt, sampling.grammar)
    return tool_bench


async def play(bench: Bench, agent: Agent, number: int) -> None:
    """One rollout; what it recorded is what its client said and was answered, in one history."""
    ticket = bench.server.open_rollout(bench.name, mode="train", seed=number)
    answer = await agent(number, ticket.base_url, ticket.api_key)
    completions = await bench.server.aclose_rollout(ticket.rollout_id)
    assert answer in (str(number), f"{number} is h\u00e9re")
    check_records(bench, ticket, completions, number)


def check_records(
    bench: Bench, ticket: RolloutTicket, completions: list[Completion], number: int
) -> None:
    assert bench.records.by_rollout(ticket.rollout_id) == completions
    assert len(completions) == (2 if completions[0].sampling.grammar else 4)
    assert {each.status for each in completions} == {CompletionStatus.COMPLETED}
    for each in completions:
        said = json.dumps([*each.messages, each.response])
        assert set(re.findall(r"agent (\d+)", said)) == {str(number)}
        assert not each.parse_errors
    # Whatever the client did to our messages, each turn went on from the recorded tokens.
    (history,) = build_histories(completions)
    assert history.sampled_tokens == sum(len(each.completion_token_ids) for each in completions)


def check_engine(bench: Bench) -> None:
    """Every record is one of the engine's samples, and none is missing."""
    served = [(each.prompt, each.token_ids, each.logprobs) for each in bench.engine.served]
    records = [
        (each.prompt_token_ids, each.completion_token_ids, each.logprobs)
        for each in bench.all_records()
    ]
    assert sorted(records) == sorted(served)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long) if n in LONG else n for n in AGENTS]
)
@pytest.mark.filterwarnings("ignore")  # theirs
async def test_an_agent_is_one_history(
    answering_bench: Bench, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    await play(answering_bench, AGENTS[name], 7)
    check_engine(answering_bench)


@pytest.fixture(scope="module")
def typescript(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    """The agent in TypeScript, compiled against OpenAI's types."""
    folder = tmp_path_factory.mktemp("typescript")
    shutil.copy(CLIENTS / "agent.ts", folder)
    (folder / "package.json").write_text('{"type": "module", "private": true}')
    npm: Callable[[list[str]], object] = functools.partial(
        subprocess.run, cwd=folder, check=True, capture_output=True
    )
    npm(["npm", "install", "--no-audit", "--no-fund", *NPM])
    npm(["npx", "tsc", "--strict", "--types", "node", "--module", "nodenext", "agent.ts"])

    async def play(number: int, base_url: str, api_key: str) -> str:
        return await run(["node", str(folder / "agent.js"), str(number)], base_url, api_key)

    return play


@pytest.mark.long
async def test_an_agent_in_typescript_is_one_history(
    answering_bench: Bench, typescript: Agent
) -> None:
    await play(answering_bench, typescript, 7)
    check_engine(answering_bench)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
async def test_32_rollouts_of_all_clients_at_once(
    answering_bench: Bench,
    typescript: Agent,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No record is crossed or lost; calls that can't be attributed are kept apart."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    bench = answering_bench
    agents = [*AGENTS.values(), typescript]
    open_all_along = bench.server.open_rollout(bench.name, mode="train")
    strays = [threading.Thread(target=stray, args=(bench, number)) for number in range(1000, 1005)]
    for thread in strays:
        thread.start()
    await asyncio.gather(
        *(play(bench, agents[number % len(agents)], number) for number in range(32))
    )
    for thread in strays:
        await asyncio.to_thread(thread.join)
    assert bench.server.close_rollout(open_all_along.rollout_id) == []
    check_engine(bench)
    quarantined = [each for each in bench.all_records() if each.rollout_id is None]
    assert len(quarantined) == bench.records.quarantined() == len(strays)
    assert all("agent 100" in str(each.messages) for each in quarantined)
    async with httpx.AsyncClient() as http:
        health = (await http.get(f"{bench.server.url}/health")).json()
    assert health["quarantined"] >= len(strays)
    said = [r.getMessage() for r in caplog.records if r.name == "art_core.gateway.access"]
    assert ["names no rollout" in each and bench.name in each for each in said] == [True]


def stray(bench: Bench, number: int) -> None:
    """A call from a raw thread, which names no rollout."""
    with openai.OpenAI(base_url=f"{bench.server.url}/v1", api_key="x") as client:
        ask(client, user(f"agent {number}"), model=bench.name)
