"""Tiny random models of several architectures, and groups of rollouts made of tokens."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
import transformers as tf
from transformers import AutoModelForCausalLM, PreTrainedModel

from art_core.trajectories import History, Trajectory, TrajectoryGroup

VOCABULARY = 97
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": True,
}


_SPREAD = {"linear": 0.05}
"""Standard deviation of the weights; large ones make the delta rule lose digits."""


def _config(architecture: str) -> Any:
    """A configuration that makes a model of some ten thousand parameters."""
    sizes: dict[str, Any] = _SIZES
    gpt2: Any = {
        "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": 512,
        "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    experts: Any = {
        "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    }  # fmt: skip
    linear: Any = {
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    }  # fmt: skip
    capped: Any = {"final_logit_softcapping": 5.0, "attn_logit_softcapping": 5.0}
    makers: dict[str, Callable[[], Any]] = {
        "llama": lambda: tf.LlamaConfig(**sizes),
        "qwen3": lambda: tf.Qwen3Config(**sizes),
        "gemma": lambda: tf.GemmaConfig(**sizes),
        "gemma2": lambda: tf.Gemma2Config(**sizes, **capped),
        "gemma3": lambda: tf.Gemma3TextConfig(**sizes, sliding_window=8),
        "mistral": lambda: tf.MistralConfig(**sizes, sliding_window=8),
        "gpt2": lambda: tf.GPT2Config(**gpt2),
        "moe": lambda: tf.MixtralConfig(**sizes, num_local_experts=4, num_experts_per_tok=2),
        "linear": lambda: tf.Qwen3NextConfig(**sizes, **experts, **linear),
    }
    return makers[architecture]()


@pytest.fixture(scope="session")
def tiny_model() -> Callable[..., PreTrainedModel]:
    """``tiny_model(architecture, seed=0)``"""
    return _model


@pytest.fixture(scope="session")
def history() -> Callable[..., History]:
    """``history(token_ids, trained, logprobs=None, version=0)``"""
    return _history


@pytest.fixture(scope="session")
def group() -> Callable[..., TrajectoryGroup]:
    """``group((reward, [history, …]), …, **metadata)``"""
    return _group


def _model(architecture: str, seed: int = 0) -> PreTrainedModel:
    """A frozen, random model in fp32, in eval mode; its weights large enough to matter."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(_config(architecture), dtype=torch.float32)
        for parameter in model.parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=_SPREAD.get(architecture, 0.15))
    return model.requires_grad_(False).eval()


def _history(
    token_ids: Sequence[int],
    trained: Iterable[int],
    logprobs: Sequence[float] | None = None,
    version: int = 0,
) -> History:
    """A history whose positions ``trained`` were sampled, at log-probability -1 unless given."""
    positions = sorted(trained)
    values: list[float | None] = [None] * len(token_ids)
    for index, position in enumerate(positions):
        values[position] = -1.0 if logprobs is None else logprobs[index]
    return History(
        token_ids=list(token_ids),
        loss_mask=[i in positions for i in range(len(token_ids))],
        logprobs=values,
        policy_versions=[version if i in positions else None for i in range(len(token_ids))],
    )


def _group(*rollouts: tuple[float, Sequence[History]], **metadata: Any) -> TrajectoryGroup:
    """A group of (reward, histories) rollouts."""
    return TrajectoryGroup(
        [Trajectory(reward=reward, histories=list(histories)) for reward, histories in rollouts],
        metadata=metadata,
    )


@pytest.fixture(autouse=True)
def one_thread() -> Iterable[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
