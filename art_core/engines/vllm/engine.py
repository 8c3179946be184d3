"""The vLLM engine: `InferenceEngine` over HTTP."""

from __future__ import annotations

import asyncio
import contextvars
import math
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from art_core.engines.protocol import AdapterRef, Chunk, EngineInfo
from art_core.engines.vllm.adapters import Adapters
from art_core.engines.vllm.api import ServerGoneError, VllmApi
from art_core.engines.vllm.attached import AttachedServer
from art_core.engines.vllm.child import ChildServer
from art_core.engines.vllm.client import CompletionClient
from art_core.engines.vllm.command import Served, command, environment, find_python
from art_core.engines.vllm.completing import Completing
from art_core.engines.vllm.gate import Gate
from art_core.engines.vllm.options import VllmOptions
from art_core.engines.vllm.probe import check_logprobs
from art_core.engines.vllm.supervisor import Server, Supervisor
from art_core.engines.vllm.wire import is_restricted, read_scores, scoring_body
from art_core.errors import (
    ContextLengthError,
    EngineDiedError,
    EngineError,
    EngineStartError,
)
from art_core.trajectories.sampling import SamplingParams

_T = TypeVar("_T")
_MOST_STARTS = 3
"""Servers in a row that may go away while they are told what to serve."""
_PROBE_PROMPTS = 4
_PROBE_LENGTH = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseFacts:
    """What the engine must know of the base model."""

    name: str
    vocab_size: int
    context_length: int
    """What the model was made for."""
    dtype: str
    device: str


class VllmEngine:
    """Talks to a vLLM server; made by `start_server` or `attach`.

    Its methods may be called from any event loops, several at a time. A server that goes
    away is waited for, and requests go on behind the tokens that they have.
    """

    def __init__(
        self,
        server: Server,
        base: BaseFacts,
        options: VllmOptions,
        *,
        folder: Path,
        api_key: str | None,
        sleeps: bool = False,
    ) -> None:
        attached = not server.restarts
        self._server = server
        self._base = base
        self._sleeps = sleeps
        self._api = VllmApi(api_key=api_key, trust_env=attached)
        self._client = CompletionClient(api_key=api_key, trust_env=attached)
        self._adapters = Adapters(self._api, folder / "adapters", self._on_server)
        self._gate = Gate()
        self._model = ""
        self._probed = False
        self._info: EngineInfo | None = None
        self._supervisor = Supervisor(server, self._prepare, max_restarts=options.max_restarts)
        try:
            self._supervisor.start()
        except BaseException:
            self._api.close()
            raise

    @classmethod
    def start_server(
        cls, base: BaseFacts, served: Served, options: VllmOptions, *, folder: Path
    ) -> VllmEngine:
        """Start a vLLM server and wait until it serves: half a minute, and more for large models.

        Args:
            folder: for its logs and the adapters that it has loaded.

        Raises:
            MissingExtraError: vLLM isn't installed, and no other environment is named.
            EngineStartError: the server doesn't start; says why, and where its log is.
        """
        options.check(attached=False)
        python, api_key = find_python(options), secrets.token_urlsafe(24)
        server = ChildServer(
            lambda port: command(python, port, served, options),
            environment(served, options, api_key, os.environ),
            folder=folder,
            port=options.port,
            start_timeout=options.start_timeout,
        )
        sleeps = served.gpu is not None and served.gpu.sleep
        return cls(server, base, options, folder=folder, api_key=api_key, sleeps=sleeps)

    @classmethod
    def attach(cls, url: str, base: BaseFacts, options: VllmOptions, *, folder: Path) -> VllmEngine:
        """Use a vLLM server that runs already.

        Args:
            folder: for the adapters; the server must see it under the same path.

        Raises:
            EngineStartError: it doesn't answer, or its logprobs can't be trained on.
        """
        options.check(attached=True)
        server = AttachedServer(url, patience=options.patience)
        return cls(server, base, options, folder=folder, api_key=options.api_key)

    @property
    def info(self) -> EngineInfo:
        if self._info is None:
            raise EngineDiedError("the vLLM engine never came up")
        return self._info

    @property
    def server(self) -> Server:
        """What is served from, to look at."""
        return self._server

    async def generate(
        self,
        prompt_token_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        adapter: AdapterRef | None = None,
    ) -> AsyncGenerator[Chunk]:
        """See `InferenceEngine.generate`.

        A completion with a grammar, top-k, top-p or min-p comes in one chunk: vLLM gives
        logprobs of what these leave over, so it is scored again as a whole. That can't be
        done at a temperature other than 0 and 1, nor by an adapter on a server that isn't
        ours: see `Chunk.forced`.
        """
        prompt = list(prompt_token_ids)
        most = self._room(prompt, sampling)
        async with self._gate.inside():
            version = self._adapters.acquire(adapter)
            completing = Completing(
                client=self._client,
                supervisor=self._supervisor,
                model=self._model if version is None else version.served_as,
                prompt=prompt,
                sampling=sampling,
                most=most,
                # vLLM 0.32 dies of scoring with an adapter, if the output head may have one.
                can_score=version is None or self._server.restarts,
            )
            try:
                async with aclosing(completing.chunks()) as chunks:
                    async for chunk in chunks:
                        yield chunk
            finally:
                self._adapters.release(version)

    async def score(self, token_ids: Sequence[int]) -> list[float]:
        """The base model's log-probability of each token behind the first.

        Raises:
            EngineError: the server can't tell.
        """
        serving = await self._supervisor.serving()
        body = scoring_body(self._model, token_ids, 0)
        return read_scores(await self._client.whole(serving.url, body), token_ids, 1, 0)[0]

    async def load_adapter(self, adapter: AdapterRef, path: Path) -> None:
        """See `InferenceEngine.load_adapter`."""
        await _in_thread(lambda: self._adapters.load(adapter, path))

    async def unload_adapter(self, adapter: AdapterRef) -> None:
        """See `InferenceEngine.unload_adapter`.

        Raises:
            AdapterError: it isn't loaded.
        """
        await _in_thread(lambda: self._adapters.unload(adapter))

    async def sleep(self) -> None:
        """Let what runs finish, then free the GPU for the trainer; no effect on a server
        that has its own. Requests wait until `wake_up`."""
        if self._sleeps:
            await self._gate.shut()
            try:
                await _in_thread(lambda: self._on_server(self._api.sleep))
            except BaseException:
                self._gate.open()
                raise

    async def wake_up(self) -> None:
        """Serve again."""
        if self._sleeps:
            await _in_thread(lambda: self._on_server(self._api.wake_up))
            self._gate.open()

    async def close(self) -> None:
        """Stop the server; one that runs elsewhere only loses the adapters."""
        await _in_thread(self._close)

    def _close(self) -> None:
        goes_on = None if self._server.restarts else self._server.url
        self._supervisor.stop()
        try:
            self._adapters.drop_all(goes_on)
        finally:
            self._api.close()

    def _room(self, prompt: Sequence[int], sampling: SamplingParams) -> int:
        """Most tokens to sample behind a checked prompt."""
        context, wanted = self.info.context_length, sampling.max_tokens
        # A restricted completion is scored as a prompt with one more token behind it.
        room = context - len(prompt) - (1 if is_restricted(sampling) else 0)
        if not prompt:
            raise ContextLengthError("the prompt is empty", "Send at least one token.")
        if room < 1 or len(prompt) + (wanted or 1) > context:
            raise ContextLengthError(
                f"{len(prompt)} prompt tokens and {wanted or 1} to sample are more than the "
                f"context of {context}",
                "Shorten the prompt or lower max_tokens.",
            )
        self._check_tokens("prompt", prompt)
        self._check_tokens("logit_bias", sampling.logit_bias)
        if not all(math.isfinite(bias) for bias in sampling.logit_bias.values()):
            raise EngineError("logit_bias has a value that isn't finite", "Use -100 to exclude.")
        return room if wanted is None else min(wanted, room)

    def _check_tokens(self, where: str, tokens: Iterable[int]) -> None:
        size = self.info.vocab_size
        outside = next((token for token in tokens if not 0 <= token < size), None)
        if outside is not None:
            raise EngineError(
                f"token {outside} in {where} isn't in the vocabulary of {size}",
                "Use the token ids of this base model's tokenizer.",
            )

    def _prepare(self, url: str) -> None:
        """What the supervisor does before a server is used."""
        if not self._probed:
            base = self._describe(url)
            numbers = range(_PROBE_LENGTH * _PROBE_PROMPTS)
            spread = [number * 7919 % base.vocab_size for number in numbers]
            prompts = [spread[n : n + _PROBE_LENGTH] for n in numbers[::_PROBE_LENGTH]]
            check_logprobs(lambda body: self._api.complete(url, body), self._model, prompts)
            self._info, self._probed = base, True
        self._adapters.restore(url)

    def _describe(self, url: str) -> EngineInfo:
        served = [model for model in self._api.models(url) if not model.get("parent")]
        if not served:
            raise EngineStartError(f"vLLM at {url} serves no base model")
        self._model = str(served[0]["id"])
        base = self._base
        context = int(served[0].get("max_model_len") or base.context_length)
        return EngineInfo(
            engine="vllm",
            base_model=base.name,
            context_length=context,
            vocab_size=base.vocab_size,
            dtype=base.dtype,
            device=base.device,
        )

    def _on_server(self, action: Callable[[str], None]) -> None:
        """Do something on the server, again if it goes away meanwhile."""
        for _ in range(_MOST_STARTS):
            serving = self._supervisor.wait_serving()
            try:
                action(serving.url)
                return
            except ServerGoneError:
                self._supervisor.wait_for_another(serving)
        raise EngineDiedError("the vLLM server keeps going away while it is told what to serve")


async def _in_thread(action: Callable[[], _T]) -> _T:
    # In an empty context: calls to the server belong to no rollout.
    return await asyncio.to_thread(contextvars.Context().run, action)
