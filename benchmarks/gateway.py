"""What the gateway costs: time per call, and share of the bare engine's throughput.

    python -m benchmarks.gateway [--json]

- ``throughput_share``: sampled tokens/s of 32 clients at once through the gateway,
  recording included, over those of as many that call the embedded engine directly
  (SmolLM2-135M, about 100 prompt tokens; 33 to 95 new ones, one length for each client;
  each makes two calls in turn, so that calls end and begin all the time).
- ``ms_per_call``, ``ms_per_stream``: median milliseconds that a call of about 150
  prompt tokens and 32 sampled ones takes on one connection, whole and streamed,
  less what the engine takes alone; the engine answers at once.

The client is in this process too, and its time counts. The share is the median of those
of pairs of runs, in turn one first and the other; the rest are medians of alternating runs.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from art_core.chat import ChatFormat, chat_format_for
from art_core.engines.embedded import EmbeddedEngine
from art_core.engines.protocol import AdapterRef, Chunk, EngineInfo, InferenceEngine
from art_core.gateway import GatewayServer, Policy
from art_core.runs.records import RecordStore
from art_core.trajectories import SamplingParams
from art_core.weights import resolve
from art_core.weights.loading import load
from benchmarks.report import report

AT_ONCE = 32
CALLS_EACH = 2
ROUNDS = 4
CALLS = 200
INSTANT_TOKENS = 32


class InstantEngine:
    """Answers at once, one token per chunk."""

    def __init__(self, token_id: int, end: int) -> None:
        self._token_ids = [token_id] * (INSTANT_TOKENS - 1) + [end]

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            engine="instant",
            base_model="none",
            context_length=8192,
            vocab_size=50_000,
            dtype="none",
            device="none",
        )

    async def generate(
        self,
        prompt_token_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        adapter: AdapterRef | None = None,
    ) -> AsyncGenerator[Chunk]:
        for token_id in self._token_ids[:-1]:
            yield Chunk(token_ids=[token_id], logprobs=[-1.0])
        yield Chunk(token_ids=self._token_ids[-1:], logprobs=[-1.0], finish_reason="stop")

    async def load_adapter(self, adapter: AdapterRef, path: Path) -> None: ...

    async def unload_adapter(self, adapter: AdapterRef) -> None: ...

    async def close(self) -> None: ...


class Connection:
    """A keep-alive HTTP connection, as lean as can be: the gateway is what is measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, url: str) -> Connection:
        host, port = url.removeprefix("http://").split(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def post(self, path: str, body: dict[str, Any]) -> bytes:
        """The response's body, as it came over the wire."""
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: gateway\r\ncontent-length: {len(content)}\r\n\r\n"
        self._writer.write(head.encode() + content)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if not answer.startswith(b"http/1.1 200"):
            raise RuntimeError(answer.decode())
        if b"transfer-encoding: chunked" in answer:
            return await self._reader.readuntil(b"\r\n0\r\n\r\n")
        length = answer.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        return await self._reader.readexactly(int(length))

    def close(self) -> None:
        self._writer.close()


def conversation(number: int, sentences: int) -> list[dict[str, Any]]:
    facts = " ".join(f"Fact {number * 1000 + n}: the sky is blue." for n in range(sentences))
    return [{"role": "user", "content": facts}]


async def seconds_per_call(server: GatewayServer, path: str, *, stream: bool) -> float:
    connection = await Connection.to(server.url)
    times: list[float] = []
    for number in range(CALLS):
        body = {"model": "bot", "messages": conversation(number, 9), "stream": stream}
        started = time.perf_counter()
        await connection.post(path, body)
        times.append(time.perf_counter() - started)
    connection.close()
    return statistics.median(times)


async def seconds_of_engine(engine: InferenceEngine) -> float:
    times: list[float] = []
    for _ in range(CALLS):
        started = time.perf_counter()
        async for _ in engine.generate([1], SamplingParams()):
            pass
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def new_tokens(client: int) -> int:
    return 33 + 2 * client


def numbers(first: int, client: int) -> range:
    """The conversations that a client holds; no two are alike."""
    return range(first + client * CALLS_EACH, first + (client + 1) * CALLS_EACH)


async def bare_rate(engine: InferenceEngine, chat: ChatFormat, first: int) -> float:
    end = chat.stop_token_ids[0]

    async def one(client: int) -> int:
        sampling = SamplingParams(
            max_tokens=new_tokens(client), stop_token_ids=(end,), logit_bias={end: -100.0}
        )
        prompts = (chat.render(conversation(number, 6)) for number in numbers(first, client))
        return sum(
            [
                len(chunk.token_ids)
                for prompt in prompts
                async for chunk in engine.generate(prompt, sampling)
            ]
        )

    started = time.perf_counter()
    counts = await asyncio.gather(*map(one, range(AT_ONCE)))
    return sum(counts) / (time.perf_counter() - started)


async def gateway_rate(server: GatewayServer, chat: ChatFormat, first: int) -> float:
    tickets = [server.open_rollout("bot", mode="train") for _ in range(AT_ONCE)]
    connections = [await Connection.to(server.url) for _ in tickets]

    async def one(client: int) -> int:
        path = f"/r/{tickets[client].rollout_id}/v1/chat/completions"
        count = 0
        for number in numbers(first, client):
            body = {
                "model": "bot",
                "messages": conversation(number, 6),
                "max_tokens": new_tokens(client),
                "logit_bias": {str(chat.stop_token_ids[0]): -100},
            }
            answer = json.loads(await connections[client].post(path, body))
            count += int(answer["usage"]["completion_tokens"])
        return count

    started = time.perf_counter()
    counts = await asyncio.gather(*map(one, range(AT_ONCE)))
    seconds = time.perf_counter() - started
    for connection, ticket in zip(connections, tickets, strict=True):
        connection.close()
        await server.aclose_rollout(ticket.rollout_id)
    return sum(counts) / seconds


def serve(engine: InferenceEngine, chat: ChatFormat, folder: str) -> tuple[GatewayServer, Policy]:
    server = GatewayServer()
    server.start()
    records = RecordStore(Path(folder) / "records.sqlite")
    policy = Policy(name="bot", chat=chat, engine=engine, records=records)
    server.add_policy(policy)
    return server, policy


def measure_calls(chat: ChatFormat, folder: str) -> dict[str, float]:
    engine = InstantEngine(chat.encode(" blue")[0], chat.stop_token_ids[0])
    server, policy = serve(engine, chat, folder)
    path = f"/r/{server.open_rollout('bot', mode='train').rollout_id}/v1/chat/completions"
    whole: list[float] = []
    streamed: list[float] = []
    for _ in range(ROUNDS):
        whole.append(asyncio.run(seconds_per_call(server, path, stream=False)))
        streamed.append(asyncio.run(seconds_per_call(server, path, stream=True)))
    alone = asyncio.run(seconds_of_engine(engine))
    server.stop()
    policy.records.close()
    return {
        "ms_per_call": (statistics.median(whole) - alone) * 1000,
        "ms_per_stream": (statistics.median(streamed) - alone) * 1000,
    }


async def measure_throughput(
    engine: InferenceEngine, chat: ChatFormat, folder: str
) -> list[tuple[float, float]]:
    """Tokens/s of the bare engine and through the gateway, of each pair of runs."""
    server, policy = serve(engine, chat, folder)
    pairs: list[tuple[float, float]] = []
    await bare_rate(engine, chat, 0)  # warms up
    for number in range(1, ROUNDS + 1):
        first = number * 2 * AT_ONCE * CALLS_EACH
        other = first + AT_ONCE * CALLS_EACH
        if number % 2:
            bare = await bare_rate(engine, chat, first)
            through = await gateway_rate(server, chat, other)
        else:
            through = await gateway_rate(server, chat, first)
            bare = await bare_rate(engine, chat, other)
        pairs.append((bare, through))
    await asyncio.to_thread(server.stop)
    policy.records.close()
    return pairs


def main() -> None:
    weights = load(resolve("smollm2-135m"))
    chat = chat_format_for(weights.tokenizer)
    engine = EmbeddedEngine(weights)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        calls = measure_calls(chat, one)
        pairs = asyncio.run(measure_throughput(engine, chat, other))
    asyncio.run(engine.close())
    report(
        "gateway",
        {
            "throughput_share": statistics.median(through / bare for bare, through in pairs),
            **calls,
        },
        setup={
            "bare_tokens_per_s": [round(bare, 1) for bare, _ in pairs],
            "gateway_tokens_per_s": [round(through, 1) for _, through in pairs],
        },
    )


if __name__ == "__main__":
    main()
