"""Token ids in, token ids and the policy's own logprobs out, on the fake server."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from art_core.engines.protocol import EngineInfo
from art_core.errors import ContextLengthError, EngineError, GrammarError
from art_core.trajectories.sampling import SamplingParams
from tests.art_core.engines.vllm.conftest import Start
from tests.art_core.engines.vllm.fake_policy import (
    BASE,
    CONTEXT,
    VOCAB,
    log_softmax,
    logits,
    logprob,
)
from tests.art_core.engines.vllm.talking import Completed, complete, look, until

PROMPT = [3, 1, 4, 1, 5]


def expected(done: Completed, temperature: float = 1.0, policy: str = BASE) -> list[float]:
    whole = [*PROMPT, *done.tokens]
    places = range(len(PROMPT), len(whole))
    return [logprob(policy, whole[:at], whole[at], temperature) for at in places]


async def test_what_is_sampled_and_its_logprobs(start: Start) -> None:
    async with start() as engine:
        assert engine.info == EngineInfo(
            engine="vllm",
            base_model="tiny",
            context_length=CONTEXT,
            vocab_size=VOCAB,
            dtype="float32",
            device="cpu",
        )
        done = await complete(engine, PROMPT, max_tokens=6, seed=1)
        assert (len(done.tokens), done.chunks, done.reason) == (6, 6, "length")
        assert done.logprobs == pytest.approx(expected(done))
        assert (await complete(engine, PROMPT, max_tokens=6, seed=1)).tokens == done.tokens
        assert (await complete(engine, PROMPT, max_tokens=6, seed=2)).tokens != done.tokens

        warm = await complete(engine, PROMPT, max_tokens=6, seed=1, temperature=0.5)
        assert warm.logprobs == pytest.approx(expected(warm, 0.5))
        greedy = await complete(engine, PROMPT, max_tokens=6, temperature=0, top_p=0.5)
        assert greedy.logprobs == pytest.approx(expected(greedy))
        assert not greedy.forced

        stopped = await complete(engine, PROMPT, seed=1, stop_token_ids=(done.tokens[2],))
        first = done.tokens.index(done.tokens[2])
        assert (stopped.tokens, stopped.reason) == (done.tokens[: first + 1], "stop")

        endless = await complete(engine, PROMPT, seed=1)
        assert (len(endless.tokens), endless.reason) == (CONTEXT - len(PROMPT), "length")

        tops = await complete(engine, PROMPT, max_tokens=1, seed=1, top_logprobs=3)
        table = log_softmax(logits(BASE, PROMPT))
        best = sorted(range(VOCAB), key=lambda token: -table[token])[:3]
        assert tops.tops == [pytest.approx({token: table[token] for token in best})]

        bias: dict[int, float] = dict.fromkeys((7, 8), 30.0)
        biased = await complete(engine, PROMPT, max_tokens=1, seed=1, logit_bias=bias)
        z = [value + bias.get(token, 0) for token, value in enumerate(logits(BASE, PROMPT))]
        assert biased.logprobs == pytest.approx([log_softmax(z)[biased.tokens[0]]])


async def test_what_is_restricted_keeps_the_policys_logprobs(start: Start) -> None:
    async with start() as engine:
        restrictions: list[dict[str, Any]] = [
            {"top_k": 3},
            {"top_p": 0.4},
            {"grammar": "start: /.*/"},
        ]
        for restriction in restrictions:
            done = await complete(
                engine, PROMPT, max_tokens=6, seed=1, top_logprobs=2, **restriction
            )
            assert (done.chunks, len(done.tokens), done.reason) == (1, 6, "length")
            assert done.logprobs == pytest.approx(expected(done))
            assert [len(top) for top in done.tops] == [2] * 6
            assert not any(done.forced)
        whole = await complete(engine, PROMPT, seed=1, top_k=3)
        assert len(whole.tokens) == CONTEXT - len(PROMPT) - 1


async def test_what_cannot_be_scored_is_not_to_be_trained_on(start: Start) -> None:
    async with start() as engine:
        cases: list[dict[str, Any]] = [{"temperature": 0.7}, {"logit_bias": {1: 2.0}}]
        for fields in cases:
            done = await complete(engine, PROMPT, max_tokens=6, seed=1, top_k=3, **fields)
            assert done.forced == [True] * 6


async def test_bad_requests(start: Start) -> None:
    async with start() as engine:
        with pytest.raises(ContextLengthError, match="empty"):
            await complete(engine, [])
        with pytest.raises(ContextLengthError, match=f"context of {CONTEXT}"):
            await complete(engine, PROMPT, max_tokens=CONTEXT)
        with pytest.raises(ContextLengthError):
            await complete(engine, [1] * CONTEXT)
        with pytest.raises(ContextLengthError):
            await complete(engine, [1] * (CONTEXT - 1), top_k=3)
        with pytest.raises(EngineError, match=f"token {VOCAB} in prompt"):
            await complete(engine, [VOCAB])
        with pytest.raises(EngineError, match="token -1 in logit_bias"):
            await complete(engine, PROMPT, logit_bias={-1: 1.0})
        with pytest.raises(GrammarError, match="no start"):
            await complete(engine, PROMPT, grammar="nonsense")
        assert (await complete(engine, PROMPT, max_tokens=1)).tokens


async def test_a_closed_generator_frees_the_server(start: Start) -> None:
    async with start({"token_seconds": 0.02}) as engine:
        chunks = engine.generate(PROMPT, SamplingParams())
        async with aclosing(chunks):
            await anext(chunks)
            assert look(engine)["running"] == 1
        await until(lambda: look(engine)["running"] == 0)


async def test_many_at_once_and_several_event_loops(start: Start) -> None:
    async with start() as engine:

        async def one(seed: int) -> Completed:
            return await complete(engine, PROMPT, max_tokens=8, seed=seed)

        here = await asyncio.gather(*map(one, range(32)))
        there = await asyncio.to_thread(lambda: asyncio.run(one(7)))
        assert there.tokens == here[7].tokens
        for done in here:
            assert done.logprobs == pytest.approx(expected(done))


async def test_a_completion_broken_off_goes_on_behind_what_it_has(start: Start) -> None:
    async with start({"break_off": 20}) as engine:
        done = await complete(engine, PROMPT, max_tokens=50, seed=1)
        assert (len(done.tokens), done.reason) == (50, "length")
        assert done.logprobs == pytest.approx(expected(done))
        prompts = [int(line.split()[1]) for line in look(engine)["log"]][-3:]
        assert prompts == [len(PROMPT), len(PROMPT) + 20, len(PROMPT) + 40]
