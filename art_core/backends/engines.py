# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Starting the engine that serves a base model."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import torch

from art_core.backends.choice import EngineChoice
from art_core.engines.embedded import EmbeddedEngine, EmbeddedOptions
from art_core.engines.protocol import InferenceEngine
from art_core.engines.vllm import VllmEngine, VllmOptions
from art_core.engines.vllm.command import Served
from art_core.engines.vllm.engine import BaseFacts
from art_core.engines.vllm.gpus import GpuPlan, Memory, plan_gpus
from art_core.errors import EngineStartError
from art_core.weights.loading import BaseWeights

logger = logging.getLogger(__name__)

_CHECKED_TOKENS = 32
_ROUNDING = 0.3
"""Mean difference of log-probabilities that bfloat16 on one side explains; another model
is off by more than 1."""


def start_engine(
    choice: EngineChoice, weights: BaseWeights, *, lora_rank: int, folder: Path
) -> InferenceEngine:
    """Start what was chosen; takes a while.

    Args:
        lora_rank: the largest adapter that is to be served.
        folder: for what vLLM prints, and its adapters.

    Raises:
        EngineError: the engine can't serve this model on this machine; says why.
        MissingExtraError: vLLM isn't installed where it is to be started.
    """
    if choice.name == "embedded":
        return EmbeddedEngine(weights, EmbeddedOptions(deterministic=choice.deterministic))
    options = choice.vllm or VllmOptions()
    folder = folder.resolve() / weights.files.digest[:12]
    if choice.url is not None:
        engine = VllmEngine.attach(choice.url, _facts(weights), options, folder=folder)
        _check_same_model(weights, engine, choice.url)
        return engine
    served = Served(
        model=weights.files.path,
        dtype=str(weights.dtype).removeprefix("torch."),
        lora_rank=lora_rank,
        lora_modules=_adaptable(weights),
        gpu=_gpu_plan(weights, options),
    )
    return VllmEngine.start_server(_facts(weights), served, options, folder=folder)


def _facts(weights: BaseWeights) -> BaseFacts:
    config: Any = weights.config.get_text_config()
    return BaseFacts(
        name=weights.files.name,
        vocab_size=config.vocab_size,
        context_length=config.max_position_embeddings,
        dtype=str(weights.dtype).removeprefix("torch."),
        device=weights.device.type,
    )


def _adaptable(weights: BaseWeights) -> tuple[str, ...]:
    """What PEFT calls all linear layers: the output head isn't among them."""
    model = weights.new_model()
    head = model.get_output_embeddings()
    names = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    }
    return tuple(sorted(names))


def _gpu_plan(weights: BaseWeights, options: VllmOptions) -> GpuPlan | None:
    if weights.device.type != "cuda":
        return None
    memory = [
        Memory(free=free, total=total)
        for free, total in map(torch.cuda.mem_get_info, range(torch.cuda.device_count()))
    ]
    plan = plan_gpus(weights.device.index or 0, memory, options)
    logger.info("vLLM takes %.0f%% of GPU memory: %s", 100 * plan.memory, plan.reason)
    return plan


def _check_same_model(weights: BaseWeights, engine: VllmEngine, url: str) -> None:
    """A server of another model would be trained on without anybody noticing."""
    size = engine.info.vocab_size
    tokens = [number * 7919 % size for number in range(1, _CHECKED_TOKENS + 1)]
    try:
        theirs = torch.tensor(asyncio.run(engine.score(tokens)))
        ids = torch.tensor([tokens], device=weights.device)
        with torch.inference_mode():
            logits: Any = weights.new_model()(input_ids=ids, use_cache=False).logits[0, :-1]
        table = torch.log_softmax(logits.float(), -1).cpu()
        ours = table.gather(1, torch.tensor(tokens[1:])[:, None]).squeeze(1)
        gap = (ours - theirs).abs().mean().item()
        if not gap < _ROUNDING:
            raise EngineStartError(
                f"vLLM at {url} serves another model than {weights.files.name}: its "
                f"log-probabilities differ by {gap:.2f} in the mean",
                "Start it with the base model that is trained.",
            )
    except BaseException:
        asyncio.run(engine.close())
        raise
