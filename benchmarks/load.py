# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
"""5,000 rollouts of a scripted agent at once, through gather and the gateway.

    python -m benchmarks.load [--json] [--rollouts N]

Each rollout has a connection of its own and plays three turns. The engine is a stub:
what it "samples" is a digest of its prompt, so that an answer or a record of another
rollout can be told from the right one.

- ``lost``: calls that were answered and aren't in the rollout's records, its histories
  or the record store.
- ``crossed``: rollouts with an answer, a record or a history that isn't their own.
- ``mb_per_1000``: memory at its peak over that before, per 1,000 rollouts that are open
  at the same time; client and server are in this process.
- ``mb_left_per_1000``: what of it is still taken when all have ended.
- ``slowest_over_median``: of the rollouts' times from first call to last answer.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from pathlib import Path

import psutil

from art_core.chat import ChatFormat, chat_format_for
from art_core.engines.protocol import AdapterRef, Chunk, EngineInfo
from art_core.gateway import GatewayServer, Policy
from art_core.rollouts import gather_trajectories
from art_core.runs.records import RecordStore
from art_core.trajectories import SamplingParams, Trajectory, build_histories
from art_core.weights import resolve
from benchmarks.gateway import Connection
from benchmarks.report import report

ROLLOUTS = 5000
TURNS = 3
SAMPLED = 16
WARM_UP = 200


class DigestEngine:
    """Answers with tokens that follow from the prompt, in a few steps, as an engine does."""

    def __init__(self, letters: Sequence[int], end: int) -> None:
        self._letters = letters
        self._end = end

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            engine="digest",
            base_model="none",
            context_length=8192,
            vocab_size=50_000,
            dtype="none",
            device="none",
        )

    def answer(self, prompt: Sequence[int]) -> list[int]:
        digest = hashlib.sha256(repr(list(prompt)).encode()).digest()
        return [*(self._letters[byte % 16] for byte in digest[: SAMPLED - 1]), self._end]

    async def generate(
        self,
        prompt_token_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        adapter: AdapterRef | None = None,
    ) -> AsyncGenerator[Chunk]:
        tokens = self.answer(prompt_token_ids)
        for start in range(0, SAMPLED, 4):
            await asyncio.sleep(0)
            part = tokens[start : start + 4]
            yield Chunk(
                token_ids=part,
                logprobs=[-1.0] * len(part),
                finish_reason="stop" if start + 4 >= SAMPLED else None,
            )

    async def load_adapter(self, adapter: AdapterRef, path: Path) -> None: ...

    async def unload_adapter(self, adapter: AdapterRef) -> None: ...

    async def close(self) -> None: ...


class Load:
    """Plays rollouts and counts what went wrong."""

    def __init__(self, server: GatewayServer, engine: DigestEngine, count: int) -> None:
        self._server = server
        self._engine = engine
        self._everybody = asyncio.Barrier(count)
        self.lost = 0
        self.crossed = 0
        self.seconds: list[float] = []
        self.completion_ids: list[str] = []

    async def play(self, number: int) -> Trajectory:
        ticket = self._server.open_rollout("bot", mode="train")
        connection = await Connection.to(self._server.url)
        await self._everybody.wait()  # all are open before the first call
        mine = f"I am number {number}."
        messages: list[dict[str, object]] = []
        answers: list[str] = []
        started = time.perf_counter()
        for turn in range(TURNS):
            messages.append({"role": "user", "content": f"{mine} Turn {turn}."})
            path = f"/r/{ticket.rollout_id}/v1/chat/completions"
            answer = json.loads(await connection.post(path, {"model": "x", "messages": messages}))
            messages.append(answer["choices"][0]["message"])
            answers.append(answer["choices"][0]["message"]["content"])
        self.seconds.append(time.perf_counter() - started)
        connection.close()
        records = await self._server.aclose_rollout(ticket.rollout_id)
        trajectory = Trajectory(rollout_id=ticket.rollout_id, histories=build_histories(records))
        kept = {i for history in trajectory.histories for i in history.completion_ids}
        self.lost += (TURNS - len(records)) + (TURNS - len(kept))
        self.crossed += not all(
            record.rollout_id == ticket.rollout_id
            and all(mine in str(m["content"]) for m in record.messages if m["role"] == "user")
            and record.completion_token_ids == self._engine.answer(record.prompt_token_ids)
            and record.response["content"] == answer
            for record, answer in zip(records, answers, strict=True)
        )
        self.completion_ids += kept
        return trajectory


class Peak:
    """The most memory that this process had, in MB, while it is watched."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._over = threading.Event()
        self.before = self.now()
        self.most = self.before
        threading.Thread(target=self._watch, daemon=True).start()

    def now(self) -> float:
        gc.collect()
        return self._process.memory_info().rss / 1e6

    def end(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self.most = max(self.most, self._process.memory_info().rss / 1e6)


async def play_all(server: GatewayServer, engine: DigestEngine, count: int) -> Load:
    load = Load(server, engine, count)
    await gather_trajectories([partial(load.play, number) for number in range(count)])
    return load


def make_engine(chat: ChatFormat) -> DigestEngine:
    return DigestEngine(
        [chat.encode(f" {c}")[0] for c in "abcdefghijklmnop"], chat.stop_token_ids[0]
    )


def measure(count: int, folder: Path) -> dict[str, float]:
    from transformers import AutoTokenizer

    chat = chat_format_for(AutoTokenizer.from_pretrained(resolve("smollm2-135m").path))
    engine = make_engine(chat)
    records = RecordStore(folder / "records.sqlite")
    server = GatewayServer()
    server.start()
    server.add_policy(Policy(name="bot", chat=chat, engine=engine, records=records))
    asyncio.run(play_all(server, engine, WARM_UP))
    peak = Peak()
    started = time.perf_counter()
    load = asyncio.run(play_all(server, engine, count))
    seconds = time.perf_counter() - started
    peak.end()
    left = peak.now() - peak.before
    stored = {record.id for record in records}
    lost = load.lost + sum(each not in stored for each in load.completion_ids)
    server.stop()
    records.close()
    return {
        "lost": lost,
        "crossed": load.crossed,
        "mb_per_1000": (peak.most - peak.before) / count * 1000,
        "mb_left_per_1000": left / count * 1000,
        "slowest_over_median": max(load.seconds) / statistics.median(load.seconds),
        "calls_per_second": count * TURNS / seconds,
    }


def main() -> None:
    words = sys.argv[1:]
    count = int(words[words.index("--rollouts") + 1]) if "--rollouts" in words else ROLLOUTS
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # two sockets for each rollout
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(count, Path(folder))
    report("load", figures, setup={"rollouts": count, "turns": TURNS})


if __name__ == "__main__":
    main()
