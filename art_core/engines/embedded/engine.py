# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""The embedded engine: `InferenceEngine` in this process, on PyTorch."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncGenerator, Iterable, Sequence
from functools import partial
from pathlib import Path

from art_core.engines.embedded.adapters import AdapterStore
from art_core.engines.embedded.cache import KVCache
from art_core.engines.embedded.delivery import AsyncClient, Delivery, Watch
from art_core.engines.embedded.determinism import check_rows_are_independent
from art_core.engines.embedded.grammar import Grammars
from art_core.engines.embedded.models import ModelFactory
from art_core.engines.embedded.options import EmbeddedOptions
from art_core.engines.embedded.request import Request
from art_core.engines.embedded.runner import Runner
from art_core.engines.embedded.scheduler import Scheduler
from art_core.engines.embedded.stats import EngineStats
from art_core.engines.embedded.worker import Worker
from art_core.engines.protocol import AdapterRef, Chunk, EngineInfo
from art_core.errors import ContextLengthError, EngineError
from art_core.trajectories.sampling import SamplingParams
from art_core.weights.loading import BaseWeights


class EmbeddedEngine:
    """Continuous batching over base weights that are in memory already.

    Its methods may be called from any event loops, several at a time.

    Raises:
        EngineError: the model's architecture can't be served; there is too little KV
            memory; or deterministic mode isn't possible on this machine.
    """

    def __init__(self, weights: BaseWeights, options: EmbeddedOptions | None = None) -> None:
        options = options or EmbeddedOptions()
        factory = ModelFactory(weights)
        architecture = factory.architecture
        if options.deterministic:
            check_rows_are_independent(factory.linears.values(), options.max_running)
        share = not (architecture.has_windows or options.deterministic)
        cache = KVCache(architecture.layout, options.kv_budget(weights.device), share_trunks=share)
        self._info = _info(weights, cache)
        self._step_seconds = options.step_seconds
        self._adapters = AdapterStore(factory, options.copy_budget(weights.device))
        self._grammars = Grammars(weights.tokenizer, self._info.vocab_size, weights.device)
        self._cache = cache
        self._delivery = Delivery()
        self._worker = Worker(
            scheduler=Scheduler(
                cache,
                max_running=options.max_running,
                step_tokens=options.step_tokens,
                deterministic=options.deterministic,
            ),
            runner=Runner(
                weights.device, fixed_rows=options.max_running if options.deterministic else None
            ),
            cache=cache,
            adapters=self._adapters,
            delivery=self._delivery,
            max_waiting=options.max_waiting,
        )
        self._worker.start()

    @property
    def info(self) -> EngineInfo:
        return self._info

    def stats(self) -> EngineStats:
        """What the engine is doing just now."""
        return self._worker.stats()

    async def generate(
        self,
        prompt_token_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        adapter: AdapterRef | None = None,
    ) -> AsyncGenerator[Chunk]:
        """See `InferenceEngine.generate`. One chunk per token.

        Raises:
            EngineError: also when the logits of this request aren't finite; others go on.
        """
        client = AsyncClient(self._delivery)
        request = self._make_request(prompt_token_ids, sampling, adapter, client)
        if sampling.grammar is not None:
            request.mask = await asyncio.to_thread(
                self._grammars.mask, sampling.grammar, sampling.stop_token_ids
            )
        self._adapters.acquire(adapter)
        try:
            self._worker.submit(request)
        except EngineError:
            self._adapters.release(adapter)
            raise
        check = partial(self._worker.check_progress, self._step_seconds)
        watch = Watch(client, check, self._step_seconds / 4)
        try:
            while True:
                event = await client.events.get()
                if isinstance(event, EngineError):
                    raise event
                yield event
                if event.finish_reason is not None:
                    return
        finally:
            watch.cancel()
            client.gone = True
            self._worker.nudge()

    async def load_adapter(self, adapter: AdapterRef, path: Path) -> None:
        """See `InferenceEngine.load_adapter`. Merges on a thread of its own."""
        await asyncio.to_thread(self._adapters.load, adapter, path)

    async def unload_adapter(self, adapter: AdapterRef) -> None:
        """See `InferenceEngine.unload_adapter`.

        Raises:
            AdapterError: it isn't loaded.
            EngineDiedError: requests still use it and the engine has died, or hangs.
        """
        check = partial(self._worker.check_progress, self._step_seconds)
        await asyncio.to_thread(self._adapters.retire, adapter, check)
        self._worker.run_soon(lambda: self._cache.forget(adapter))
        self._adapters.drop(adapter)

    async def close(self) -> None:
        """Fail what runs with EngineDiedError, and free the memory."""
        await asyncio.to_thread(self._worker.stop, self._step_seconds)

    def _make_request(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams,
        adapter: AdapterRef | None,
        client: AsyncClient,
    ) -> Request:
        context = self._info.context_length
        wanted = sampling.max_tokens
        if not prompt:
            raise ContextLengthError("the prompt is empty", "Send at least one token.")
        if len(prompt) + (wanted or 1) > context:
            raise ContextLengthError(
                f"{len(prompt)} prompt tokens and {wanted or 1} to sample are more than the "
                f"context of {context}",
                "Shorten the prompt or lower max_tokens.",
            )
        self._check_tokens("prompt", prompt)
        self._check_tokens("logit_bias", sampling.logit_bias)
        if not all(math.isfinite(bias) for bias in sampling.logit_bias.values()):
            raise EngineError("logit_bias has a value that isn't finite", "Use -100 to exclude.")
        return Request(
            adapter=adapter,
            sampling=sampling,
            seed=sampling.seed if sampling.seed is not None else secrets.randbits(63),
            tokens=list(prompt),
            prompt_length=len(prompt),
            max_length=len(prompt) + wanted if wanted is not None else context,
            client=client,
        )

    def _check_tokens(self, where: str, tokens: Iterable[int]) -> None:
        outside = next((t for t in tokens if not 0 <= t < self._info.vocab_size), None)
        if outside is not None:
            raise EngineError(
                f"token {outside} in {where} isn't in the vocabulary of {self._info.vocab_size}",
                "Use the token ids of this base model's tokenizer.",
            )


def _info(weights: BaseWeights, cache: KVCache) -> EngineInfo:
    config = weights.config.get_text_config()
    context = min(config.max_position_embeddings, cache.longest)
    if context < 2:
        raise EngineError(
            f"{cache.limit} tokens of KV memory are too few to serve {weights.files.name}",
            "Give the engine more with kv_bytes.",
        )
    return EngineInfo(
        engine="embedded",
        base_model=weights.files.name,
        context_length=context,
        vocab_size=config.vocab_size,
        dtype=str(weights.dtype).removeprefix("torch."),
        device=str(weights.device),
    )
