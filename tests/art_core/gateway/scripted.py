# pyright: reportUnknownMemberType=false
"""An engine that samples what a test says, and a small real tokenizer to spell it with."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from art_core.chat import ChatFormat, chat_format_for
from art_core.engines.protocol import AdapterRef, Chunk, EngineInfo
from art_core.gateway import GatewayServer, Policy
from art_core.runs.records import RecordStore
from art_core.trajectories import Completion, SamplingParams

IM_START, IM_END = "<|im_start|>", "<|im_end|>"
TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
_MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("i", "n"), ("Ġ", "t"), ("1", "2")]


_FIRST_TAG_ID = 256 + len(_MERGES) + 2
_TAG_IDS = {tag: _FIRST_TAG_ID + index for index, tag in enumerate(TAGS)}


def make_tokenizer(template: str) -> PreTrainedTokenizerFast:
    """A tokenizer of single bytes and a few merges.

    Most texts have many spellings in tokens, only one of which it would choose.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*alphabet, *(left + right for left, right in _MERGES)]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=_MERGES))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True) for text in (IM_START, IM_END)])
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=IM_END, chat_template=template
    )


def make_chat(template: str) -> ChatFormat:
    """The real chat format over that tokenizer."""
    return chat_format_for(make_tokenizer(template))


class Hold:
    """A place in a script where the engine waits until the test lets it go on."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()

    def release(self) -> None:
        self._released.set()

    def wait_until_reached(self) -> None:
        assert self._reached.wait(10), "the engine never got there"

    async def pass_by(self) -> None:
        self._reached.set()
        while not self._released.is_set():  # noqa: ASYNC110  (set by another thread)
            await asyncio.sleep(0.002)


Step = list[int] | Hold | Exception
"""Tokens to sample as one chunk, a place to wait, or an error to raise."""
Script = Callable[[list[int], SamplingParams], Iterable[Step]]
Ending = Literal["running", "finished", "cancelled", "failed"]


@dataclass
class Served:
    """A request as the engine saw it."""

    prompt: list[int]
    sampling: SamplingParams
    adapter: AdapterRef | None
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    ending: Ending = "running"


class ScriptedEngine:
    """An `InferenceEngine` whose every logprob is a number that occurs once."""

    def __init__(self) -> None:
        self.script: Script = lambda prompt, sampling: []
        self.served: list[Served] = []
        self._sampled = 0

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            engine="scripted",
            base_model="none",
            context_length=100_000,
            vocab_size=300,
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
        served = Served(list(prompt_token_ids), sampling, adapter)
        self.served.append(served)
        try:
            async for chunk in self._chunks(served):
                yield chunk
            served.ending = "finished"
        except (GeneratorExit, asyncio.CancelledError):
            served.ending = "cancelled"
            raise
        except Exception:
            served.ending = "failed"
            raise

    async def _chunks(self, served: Served) -> AsyncGenerator[Chunk]:
        sampling = served.sampling
        steps = list(self.script(served.prompt, sampling))
        room = 10**9 if sampling.max_tokens is None else sampling.max_tokens
        for index, step in enumerate(steps):
            if isinstance(step, Exception):
                raise step
            if isinstance(step, Hold):
                await step.pass_by()
                continue
            token_ids = step[:room]
            room -= len(token_ids)
            last = room == 0 or index == len(steps) - 1
            stopped = bool(token_ids) and token_ids[-1] in sampling.stop_token_ids
            logprobs = [self._logprob() for _ in token_ids]
            served.token_ids += token_ids
            served.logprobs += logprobs
            yield Chunk(
                token_ids=token_ids,
                logprobs=logprobs,
                top_logprobs=[{token: -1.0, 0: -2.0} for token in token_ids]
                if sampling.top_logprobs
                else [],
                finish_reason=("stop" if stopped else "length") if last else None,
            )
            if last:
                return

    def _logprob(self) -> float:
        self._sampled += 1
        return -self._sampled / 1024

    async def load_adapter(self, adapter: AdapterRef, path: Path) -> None: ...

    async def unload_adapter(self, adapter: AdapterRef) -> None: ...

    async def close(self) -> None: ...


class Bench:
    """One policy on a running gateway, with its scripted engine and its records."""

    def __init__(
        self, server: GatewayServer, name: str, chat: ChatFormat, records: RecordStore
    ) -> None:
        self.server = server
        self.name = name
        self.chat = chat
        self.records = records
        self.engine = ScriptedEngine()
        self.policy = Policy(name=name, chat=chat, engine=self.engine, records=records)
        server.add_policy(self.policy)

    @property
    def end(self) -> int:
        """The token that ends a turn."""
        return self.chat.stop_token_ids[0]

    def spell(self, text: str) -> list[int]:
        return self.chat.encode(text)

    def marked(self, text: str) -> list[int]:
        """Tokens of a text with tags in it, each the one token that it is, if it is one."""
        token_ids: list[int] = []
        for part in re.split("(" + "|".join(TAGS) + ")", text):
            tag = _TAG_IDS.get(part)
            is_token = tag is not None and self.chat.decode([tag]) == part
            token_ids += [tag] if is_token and tag is not None else self.spell(part)
        return token_ids

    def say(self, *texts: str) -> None:
        """Answer with these texts in turn, the last one again and again; token by token."""
        waiting = list(texts)

        def script(prompt: list[int], sampling: SamplingParams) -> list[Step]:
            text = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            return [[token] for token in [*self.marked(text), self.end]]

        self.engine.script = script

    def do(self, *steps: Step) -> None:
        """Answer every request with these steps."""
        self.engine.script = lambda prompt, sampling: steps

    def record_of(self, completion_id: str) -> Completion:
        (completion,) = self.records.by_ids([completion_id])
        return completion

    def all_records(self) -> list[Completion]:
        return list(self.records)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def ask(client: openai.OpenAI, *messages: Any, **more: Any) -> ChatCompletion:
    """A chat completion of ``messages`` (one that says hi)."""
    create: Any = client.chat.completions.create
    return create(**{"model": "m", "messages": messages or [user("hi")]} | more)


def ask_streaming(client: openai.OpenAI, *messages: Any, **more: Any) -> list[ChatCompletionChunk]:
    """The same, in chunks."""
    create: Any = client.chat.completions.create
    return list(
        create(**{"model": "m", "messages": messages or [user("hi")], "stream": True} | more)
    )


def text_of(chunks: Iterable[ChatCompletionChunk], index: int = 0) -> str:
    """The content of a streamed choice."""
    choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    return "".join(choice.delta.content or "" for choice in choices)


def extra(item: object, name: str) -> Any:
    """A field that OpenAI's API doesn't have."""
    return getattr(item, name)


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, "it never became so"
        time.sleep(0.005)
