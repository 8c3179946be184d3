# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Constrained sampling: what a grammar allows, under logprobs that know nothing of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from art_core.engines.embedded import EmbeddedEngine
from art_core.engines.protocol import Chunk
from art_core.errors import GrammarError
from art_core.trajectories.sampling import SamplingParams
from art_core.weights import resolve
from art_core.weights.loading import BaseWeights, load

SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["ada", "bob"]}, "ok": {"type": "boolean"}},
    "required": ["name", "ok"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
JSON = f"start: %json {json.dumps(SCHEMA)}"
END = 256


@pytest.fixture(scope="module")
def byte_weights(tmp_path_factory: pytest.TempPathFactory) -> BaseWeights:
    """A random model over bytes, an end token and a marker."""
    folder = tmp_path_factory.mktemp("byte-model")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<end>", special=True)])
    backend.add_tokens([AddedToken("<mark>", special=False, normalized=False)])
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>").save_pretrained(folder)
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama",
        vocab_size=264,  # more rows than tokens, as many models have
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=END,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return load(resolve(str(folder)), dtype="float32")


@pytest.fixture(scope="module")
def byte_engine(byte_weights: BaseWeights) -> Iterator[EmbeddedEngine]:
    engine = EmbeddedEngine(byte_weights)
    yield engine
    asyncio.run(engine.close())


async def sample(
    engine: EmbeddedEngine, grammar: str | None, prompt: Sequence[int] = (5, 6), **more: object
) -> list[Chunk]:
    fields = {"grammar": grammar, "stop_token_ids": (END,), "max_tokens": 80, **more}
    sampling = SamplingParams.model_validate(fields)
    return [chunk async for chunk in engine.generate(prompt, sampling)]


def tokens(chunks: Sequence[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


def forced(chunks: Sequence[Chunk]) -> list[bool]:
    return [flag for chunk in chunks for flag in chunk.forced]


def text(engine_weights: BaseWeights, chunks: Sequence[Chunk]) -> str:
    return str(engine_weights.tokenizer.decode(tokens(chunks), skip_special_tokens=True))


@pytest.mark.parametrize("temperature", [0, 1])
async def test_what_is_sampled_is_what_the_grammar_allows(
    byte_engine: EmbeddedEngine, byte_weights: BaseWeights, temperature: float
) -> None:
    seen: set[str] = set()
    for seed in range(8):
        chunks = await sample(byte_engine, JSON, temperature=temperature, seed=seed)
        answer = json.loads(text(byte_weights, chunks))
        assert set(answer) == {"name", "ok"}
        assert answer["name"] in ("ada", "bob")
        assert chunks[-1].finish_reason == "stop"
        seen.add(json.dumps(answer))
    assert len(seen) == 1 if temperature == 0 else len(seen) > 1


async def test_only_tokens_that_had_an_alternative_are_free(
    byte_engine: EmbeddedEngine, byte_weights: BaseWeights
) -> None:
    chunks = await sample(byte_engine, JSON, seed=1)
    decoded = [str(byte_weights.tokenizer.decode([token])) for token in tokens(chunks)]
    free = [text for text, was in zip(decoded, forced(chunks), strict=True) if not was]
    assert len(free) == 2
    assert free[0] in ("a", "b")  # ada or bob
    assert free[1] in ("t", "f")  # true or false


async def test_logprobs_are_the_policys_own(
    byte_engine: EmbeddedEngine, byte_weights: BaseWeights
) -> None:
    """Recorded is what the model gives a token, not what the grammar leaves of it."""
    chunks = await sample(byte_engine, JSON, [5, 6], seed=3)
    with torch.no_grad():
        ids = torch.tensor([[5, 6, *tokens(chunks)]])
        logits = byte_weights.new_model()(input_ids=ids).logits[0, 1:-1].float()
    chosen = torch.log_softmax(logits, -1).gather(1, torch.tensor(tokens(chunks))[:, None])
    recorded = [logprob for chunk in chunks for logprob in chunk.logprobs]
    assert recorded == pytest.approx(chosen.squeeze(1).tolist(), abs=1e-4)
    assert max(recorded) < -1  # forced tokens too: nothing is certain to a random model


async def test_constrained_and_free_requests_share_a_batch(
    byte_engine: EmbeddedEngine, byte_weights: BaseWeights
) -> None:
    alone = await sample(byte_engine, None, seed=9)
    together = await asyncio.gather(
        *[sample(byte_engine, JSON if n % 2 else None, seed=9) for n in range(8)]
    )
    for number, chunks in enumerate(together):
        if number % 2:
            json.loads(text(byte_weights, chunks))
        else:
            assert tokens(chunks) == tokens(alone)
            assert forced(chunks) == []


async def test_tokens_by_id(byte_engine: EmbeddedEngine) -> None:
    chunks = await sample(byte_engine, 'start: "a" <[257]> "b"')
    assert tokens(chunks)[1] == 257
    assert len(tokens(chunks)) == 4
    assert all(forced(chunks))


@pytest.mark.parametrize("grammar", ["nonsense", 'start: %json {"type": "stringy"}', "start: x"])
async def test_a_grammar_that_cannot_be_used(byte_engine: EmbeddedEngine, grammar: str) -> None:
    with pytest.raises(GrammarError, match="the grammar can't be used"):
        await sample(byte_engine, grammar)


async def test_an_end_token_of_the_requests_own(byte_engine: EmbeddedEngine) -> None:
    chunks = await sample(byte_engine, 'start: "a"', stop_token_ids=(257,))
    assert tokens(chunks)[-1] == 257
    assert chunks[-1].finish_reason == "stop"
